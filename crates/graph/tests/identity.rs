//! Digests of graphs: pinned, the same under other names and orders, different after any other change.

use std::collections::BTreeSet;
use std::path::Path;

use tilewright_digest::Canonical;
use tilewright_graph::passes::dead_code::dead_code;
use tilewright_graph::verify::verify;
use tilewright_graph::{Graph, text};

/// The inputs of the golden tests that are valid graphs, by file.
fn graphs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let input = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let input = rest.split("\n----\n").next().unwrap().to_string();
        let is_valid = head != "test: parse-error" && verify(&text::parse(&input).unwrap()).is_empty();
        is_valid.then(|| (path.file_name().unwrap().to_string_lossy().into_owned(), input))
    };
    files.iter().filter_map(input).collect()
}

fn parse(text: &str) -> Graph {
    text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

const PINNED: &str = "graph g {
  sym n input 1..64:1
  region0(%x: f32[n, 4]) {
    %w: f32[4, 2] = Constant[f32[4, 2]{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}]()
    %y: f32[n, 2] = MatMul[](%x, %w) @ \"product\"
    %z: f32[n, 2] = Unary[relu](%y)
    return %z as z
  }
}
";

#[test]
fn a_digest_is_pinned() {
    assert_eq!(
        parse(PINNED).digest().to_string(),
        "f6e299f36dde94f1e0174c7a82bf267f3511d882e37c3f951cd5f236cdd8e5b8"
    );
}

#[test]
fn names_and_orders_are_incidental() {
    let (mut n, mut swaps) = (0, 0);
    for (file, input) in graphs() {
        let digest = parse(&input).digest();
        let (_, body) = input.split_once('{').unwrap();
        let renamed = format!("graph other {{{}", body.replace('%', "%other_"));
        assert_eq!(parse(&renamed).digest(), digest, "{file}: renamed");
        let elsewhere: String =
            input.lines().map(|line| without_provenance(line).to_owned() + "\n").collect();
        assert_eq!(parse(&elsewhere).digest(), digest, "{file}: without provenance");
        // Two nodes that do not depend on one another, the other way round.
        let lines: Vec<&str> = input.lines().collect();
        for i in 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(i - 1, i);
            let is_pair = [lines[i - 1], lines[i]].iter().all(|line| line.trim_start().starts_with('%'));
            let has_effect = [lines[i - 1], lines[i]]
                .iter()
                .any(|line| line.contains("Random") || line.contains("Custom"));
            let Some(swapped) = text::parse(&swapped.join("\n")).ok().filter(|_| is_pair && !has_effect)
            else {
                continue;
            };
            if verify(&swapped).is_empty() {
                assert_eq!(swapped.digest(), digest, "{file}: line {i} and the next");
                swaps += 1;
            }
        }
        n += 1;
    }
    assert!(n > 15 && swaps > 30, "{n} graphs, {swaps} swaps");
}

fn without_provenance(line: &str) -> &str {
    line.split_once(" @ ").map_or(line, |(node, _)| node)
}

/// What of a graph counts, as text: without dead nodes, the graph's name and provenance.
fn essence(graph: &Graph) -> String {
    let mut graph = graph.clone();
    dead_code(&mut graph).unwrap();
    let text = text::print(&graph);
    text.lines().skip(1).map(|line| without_provenance(line).to_owned() + "\n").collect()
}

/// Words and numbers of a line, by place.
fn tokens(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut tokens = Vec::new();
    let mut start = None;
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        match (c.is_ascii_alphanumeric() || c == '_' || c == '.', start) {
            (true, None) => start = Some(at),
            (false, Some(begin)) => {
                tokens.push(begin..at);
                start = None;
            }
            _ => {}
        }
    }
    tokens
}

/// Every number and keyword of types and attributes, changed.
#[test]
fn every_attribute_counts() {
    let graphs = graphs();
    let attributes = |line: &str| without_provenance(line).to_owned();
    let mut words: BTreeSet<String> = BTreeSet::new();
    for line in graphs.iter().flat_map(|(_, input)| input.lines()).map(attributes) {
        words.extend(tokens(&line).into_iter().map(|token| line[token].to_string()));
    }
    words.retain(|word| {
        word.starts_with(|c: char| c.is_ascii_lowercase()) && word.len() > 2 && word.len() < 12
    });
    let mut changes = 0;
    for (file, input) in &graphs {
        let graph = parse(input);
        let (digest, before) = (graph.digest(), essence(&graph));
        let lines: Vec<&str> = input.lines().collect();
        for (i, line) in lines.iter().enumerate().skip(1) {
            if ["sym", "meta"].iter().any(|word| line.trim_start().starts_with(word)) {
                continue;
            }
            let mut line = attributes(line);
            if line.trim_start().starts_with("guard") {
                // The message is for people.
                line.truncate(line.find('"').unwrap_or(line.len()));
            }
            for token in tokens(&line) {
                let old = &line[token.clone()];
                let number = old.parse::<i64>().map(|n| vec![(n + 1).to_string(), (n - 1).to_string()]);
                // A fixed sample of words keeps the test short.
                let some =
                    || words.iter().skip(i % 7).step_by(7).filter(|word| *word != old).cloned().collect();
                for new in number.unwrap_or_else(|_| some()) {
                    let mut changed = lines.iter().map(|line| line.to_string()).collect::<Vec<_>>();
                    changed[i] = format!("{}{new}{}", &lines[i][..token.start], &lines[i][token.end..]);
                    let Ok(changed) = text::parse(&changed.join("\n")) else { continue };
                    if verify(&changed).is_empty() && essence(&changed) != before {
                        assert_ne!(changed.digest(), digest, "{file}: {old} to {new} in\n{line}");
                        changes += 1;
                    }
                }
            }
        }
    }
    assert!(changes > 300, "{changes} changes");
}

#[test]
fn constants_count_to_the_last_element() {
    let digest = parse(PINNED).digest();
    assert_ne!(parse(&PINNED.replace("8.0", "-8.0")).digest(), digest);
    assert_ne!(parse(&PINNED.replace("as z", "as y")).digest(), digest);
    assert_ne!(parse(&PINNED.replace("sym n", "sym m").replace("[n,", "[m,")).digest(), digest);
    assert_ne!(parse(&PINNED.replace("1..64", "2..64")).digest(), digest);
}
