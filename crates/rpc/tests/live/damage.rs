//! What a client sends that is no client of ours.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use tilewright_rpc::{Digest, Limits};

use super::memory;
use super::parties::{LEASE, Raw, frame};
use super::support::{Served, run, wait_until};

/// Asks to upload so many bytes.
fn put(digest: &[u8; 32], bytes: u8) -> Vec<u8> {
    let mut message = vec![5];
    message.extend_from_slice(digest);
    message.push(bytes);
    message
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    let text = Digest::of(bytes).to_string();
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("a digit"))
}

const AGREED: [u8; 1] = [6];
const STORED: [u8; 1] = [7];
const FAULT: u8 = 9;

pub(crate) fn a_blob_with_another_digest_is_refused() {
    let served = Served::new(Limits::default());
    let mut raw = Raw::leased(&served);
    let announced = digest(b"abcd");
    for (came, is_kept) in [(b"abce", false), (b"abcd", true)] {
        raw.frame(0, &put(&announced, 4));
        assert_eq!(raw.answer(), AGREED);
        raw.frame(1, came);
        let answer = raw.answer();
        if is_kept {
            assert_eq!(answer, STORED);
        } else {
            // The fault names both digests.
            assert_eq!((answer[0], answer[1]), (FAULT, 4));
            assert_eq!((&answer[2..34], &answer[34..]), (&announced[..], &digest(came)[..]));
        }
    }
    assert_eq!(served.client().status().expect("a status").stored, 4);
}

pub(crate) fn an_upload_that_stops_leaves_nothing() {
    let served = Served::new(Limits::default());
    let mut raw = Raw::leased(&served);
    raw.frame(0, &put(&digest(b"abcd"), 4));
    assert_eq!(raw.answer(), AGREED);
    raw.frame(1, b"ab");
    drop(raw);
    let mut client = served.client();
    assert_eq!(run(&mut client, "reverse", b"next", &[]).expect("an answer").answer, b"next");
    assert_eq!(client.status().expect("a status").stored, 0);
}

/// More than any frame may have.
const TOO_MUCH: usize = 16 << 20;

pub(crate) fn long_frames_take_no_memory() {
    let served = Served::new(Limits::default());
    let before = memory::largest();
    assert!(before < TOO_MUCH, "the test itself takes {before} bytes at once");
    for claimed in [u32::MAX, 1 << 31, (1 << 20) + 1] {
        let mut raw = Raw::new(&served);
        raw.send(&claimed.to_le_bytes());
        raw.send(&[0]);
        assert_eq!(raw.0.read(&mut [0]).unwrap_or(0), 0, "the connection ends");
        let said = format!("a frame of {claimed} bytes, and 1048576 are the most");
        wait_until(|| served.log.lock().expect("a log").iter().any(|line| line.contains(&said)));
    }
    // Before the handshake much less is taken; within a message, a list that claims more than is there.
    let mut early = Raw(served.stream());
    early.send(b"TWRPC\0\x01\0");
    early.send(&2000u32.to_le_bytes());
    early.send(&[0]);
    wait_until(|| {
        served.log.lock().expect("a log").iter().any(|line| line.contains("and 1024 are the most"))
    });
    let mut list = Raw::leased(&served);
    list.frame(0, &[4, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    wait_until(|| served.log.lock().expect("a log").iter().any(|line| line.contains("what is no message")));
    assert!(memory::largest() < TOO_MUCH, "{} bytes at once", memory::largest());
}

/// What a client sends in a whole session: preamble, hello, proof, and one request after the other.
fn session() -> Vec<Vec<u8>> {
    let mut job = vec![6, 7];
    job.extend_from_slice(b"reverse");
    job.extend_from_slice(&[3, b'a', b'b', b'c', 1]);
    job.extend_from_slice(&digest(b"abcd"));
    job.extend_from_slice(&[0xe0, 0xd4, 0x03]);
    let mut lacks = vec![4, 1];
    lacks.extend_from_slice(&digest(b"abcd"));
    vec![
        b"TWRPC\0\x01\0".to_vec(),
        frame(0, &Raw::hello()),
        frame(0, &[0]),
        frame(0, &[0]),
        frame(0, &[1]),
        frame(0, &[LEASE]),
        frame(0, &lacks),
        frame(0, &put(&digest(b"abcd"), 4)),
        frame(1, b"abcd"),
        frame(0, &job),
        frame(0, &[3]),
    ]
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Damages one of the frames: bits, bytes, lengths, order, or where it ends.
fn damage(frames: &mut Vec<Vec<u8>>, numbers: &mut Numbers) {
    let at = numbers.below(frames.len());
    let n = frames[at].len();
    match numbers.below(7) {
        0 => frames[at][numbers.below(n)] ^= 1 << numbers.below(8),
        1 => frames[at][numbers.below(n)] = numbers.below(256) as u8,
        2 => frames[at].truncate(numbers.below(n)),
        3 => frames[at].extend((0..=numbers.below(40)).map(|i| i as u8)),
        4 => drop(frames.remove(at)),
        5 => frames.swap(at, numbers.0 as usize % 11),
        // The header of a frame claims anything.
        _ => {
            let claimed = (numbers.0 as u32).rotate_left(7).to_le_bytes();
            frames[at][..4].copy_from_slice(&claimed);
        }
    }
}

pub(crate) fn damaged_frames_end_connections_alone() {
    const SESSIONS: usize = 10_000;
    const THREADS: usize = 4;
    // A server for each thread: nobody waits for the machine.
    let serve = |thread: usize| {
        let mut config = super::support::config(None, Limits::default());
        // Jobs find no program: what processes do is another test's.
        config.command = Box::new(|| std::process::Command::new("/no/such/program"));
        config.limits.silence = Duration::from_millis(500);
        config.limits.handshake = Duration::from_millis(500);
        let served = Served::with(config);
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (thread as u64) << 32);
        for _ in 0..SESSIONS / THREADS {
            let mut frames = session();
            damage(&mut frames, &mut numbers);
            let mut stream = served.stream();
            // A server that has heard enough closes while we speak.
            let sent = frames.iter().try_for_each(|frame| stream.write_all(frame));
            if sent.is_ok() {
                _ = stream.shutdown(Shutdown::Write);
            }
            // It ends the connection, whatever it was told: nothing here waits for ever.
            _ = stream.read_to_end(&mut Vec::new());
        }
        served
    };
    let serve = &serve;
    let served: Vec<Served> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || serve(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a server")).collect()
    });
    assert!(memory::largest() < TOO_MUCH, "{} bytes at once", memory::largest());
    // They still serve, and most sessions came as far as their job.
    let mut jobs = 0;
    for served in served {
        let mut client = served.client();
        wait_until(|| !client.status().expect("a status").is_leased);
        let status = client.status().expect("a status");
        assert!(!status.is_busy && status.waiting == 0 && status.stored <= 4, "{status:?}");
        jobs += status.jobs;
    }
    assert!(jobs > SESSIONS as u64 / 10, "{jobs} jobs");
}
