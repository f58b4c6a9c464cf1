//! Which code runs where: generations of GPUs, and versions of PTX and of the driver.

/// The oldest driver that knows a GPU that code is made for.
pub(crate) const OLDEST_DRIVER: u32 = 11000;

/// Compute capability, ten times the major number plus the minor one: 80 for `sm_80`.
pub(crate) type Sm = u32;

/// The name of a compute capability, as compilers have it.
pub(crate) fn sm_name(sm: Sm) -> String {
    format!("sm_{sm}")
}

/// What code was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeArch {
    sm: Sm,
    reach: Reach,
}

/// On what else code runs than what it was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// `sm_90`: all that is newer, as PTX.
    Newer,
    /// `sm_100f`: what is newer of its major number.
    Family,
    /// `sm_90a`: nothing.
    Alone,
}

impl CodeArch {
    /// Reads `sm_80`, `sm_90a`, `sm_100f`.
    pub(crate) fn parse(name: &str) -> Option<CodeArch> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, reach) = match digits.strip_suffix(['a', 'f']) {
            Some(rest) if digits.ends_with('a') => (rest, Reach::Alone),
            Some(rest) => (rest, Reach::Family),
            None => (digits, Reach::Newer),
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let sm = digits.parse().ok().filter(|sm| is_number && (10..10_000).contains(sm))?;
        Some(CodeArch { sm, reach })
    }

    /// The compute capability.
    pub(crate) fn sm(self) -> Sm {
        self.sm
    }

    /// Whether PTX for it runs on a device.
    pub(crate) fn ptx_runs_on(self, device: Sm) -> bool {
        match self.reach {
            Reach::Newer => self.sm <= device,
            Reach::Family => self.cubin_runs_on(device),
            Reach::Alone => self.sm == device,
        }
    }

    /// Whether machine code for it runs on a device: only where the major number is the same.
    pub(crate) fn cubin_runs_on(self, device: Sm) -> bool {
        match self.reach {
            Reach::Newer | Reach::Family => self.sm / 10 == device / 10 && self.sm <= device,
            Reach::Alone => self.sm == device,
        }
    }
}

/// A version of CUDA, for people: `12.4` for 12040.
pub(crate) fn version(cuda: u32) -> String {
    format!("{}.{}", cuda / 1000, cuda % 1000 / 10)
}

/// A version of PTX: major, minor.
pub(crate) type PtxVersion = (u32, u32);

/// The newest PTX that a driver of [`OLDEST_DRIVER`] or newer assembles; `None` where that is not known.
pub(crate) fn newest_ptx(cuda: u32) -> Option<PtxVersion> {
    match (cuda / 1000, cuda % 1000 / 10) {
        (11, minor) => Some((7, minor.min(8))),
        (12, minor @ 0..=5) => Some((8, minor)),
        (12, minor @ 6..=9) => Some((8, minor - 1)),
        (12, _) => Some((8, 8)),
        (13, 0) => Some((9, 0)),
        _ => None,
    }
}

/// The version of PTX that a text is in.
pub(crate) fn ptx_version(ptx: &[u8]) -> Option<PtxVersion> {
    let mut lines = ptx.split(|&byte| byte == b'\n');
    let stated = lines.find_map(|line| line.trim_ascii_start().strip_prefix(b".version"))?;
    let stated = std::str::from_utf8(stated).ok()?.split_ascii_whitespace().next()?;
    let (major, minor) = stated.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(name: &str) -> CodeArch {
        CodeArch::parse(name).expect("the name of a generation")
    }

    #[test]
    fn names_that_are_no_generation() {
        for name in ["", "80", "sm_", "sm_x", "sm_8", "sm_+80", "sm_80b", "sm_a", "sm_99999", "compute_80"] {
            assert_eq!(CodeArch::parse(name), None, "{name}");
        }
    }

    #[test]
    fn ptx_runs_on_what_is_newer() {
        let runs = |name: &str| [80, 89, 90, 100, 103, 120].map(|device| arch(name).ptx_runs_on(device));
        assert_eq!(runs("sm_80"), [true; 6]);
        assert_eq!(runs("sm_90"), [false, false, true, true, true, true]);
        assert_eq!(runs("sm_90a"), [false, false, true, false, false, false]);
        assert_eq!(runs("sm_100f"), [false, false, false, true, true, false]);
    }

    #[test]
    fn cubins_run_on_their_major_number() {
        let runs = |name: &str| [80, 86, 89, 90, 100, 103].map(|device| arch(name).cubin_runs_on(device));
        assert_eq!(runs("sm_80"), [true, true, true, false, false, false]);
        assert_eq!(runs("sm_86"), [false, true, true, false, false, false]);
        assert_eq!(runs("sm_90a"), [false, false, false, true, false, false]);
        assert_eq!(runs("sm_100f"), [false, false, false, false, true, true]);
    }

    #[test]
    fn drivers_and_their_ptx() {
        let newest = [11000, 11010, 11080, 12000, 12050, 12060, 12070, 12090, 13000].map(newest_ptx);
        let expect = [(7, 0), (7, 1), (7, 8), (8, 0), (8, 5), (8, 5), (8, 6), (8, 8), (9, 0)];
        assert_eq!(newest, expect.map(Some));
        assert_eq!([13010, 14000].map(newest_ptx), [None; 2]);
        assert_eq!(version(12040), "12.4");
    }

    #[test]
    fn the_version_of_a_text() {
        assert_eq!(ptx_version(b"//\n// .version 1.0\n\n.version 8.7\r\n.target sm_90"), Some((8, 7)));
        for text in [&b""[..], b".version", b".version 8", b".version x.y", b"\xff\n.version \xff"] {
            assert_eq!(ptx_version(text), None);
        }
    }
}
