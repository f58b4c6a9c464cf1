//! The profile as one page: the graph coloured by time, and the table.

use serde_json::{Value, json};
use tilewright_driver::machine::Ceilings;
use tilewright_driver::run::profile::{self, By, Grouped, Profile, Row, edges, grouped, layout};
use tilewright_driver::runtime::{Model, Program};

use super::table;

/// The page, but for the figures: they take the place of [`MARK`].
const PAGE: &str = include_str!("page.html");

/// Where the figures go.
const MARK: &str = "\"FIGURES\"";

/// The page of a profile; it refers to nothing outside of itself.
pub(super) fn page(model: &Model, program: &Program, profile: &Profile, ceilings: &Ceilings) -> String {
    let least = |flops, bytes| ceilings.least_seconds(flops, bytes);
    let Grouped { rows, row_of } = grouped(program, profile, Some(&least), By::Node);
    let edges = edges(program.plan(), &row_of);
    let spots = layout(rows.len(), &edges);
    let figures = json!({
        "model": model.manifest().model,
        "compiler": model.manifest().compiler,
        "target": model.manifest().target,
        "wall_ms": profile.wall_ms,
        "threads": ceilings.threads,
        "gflops": ceilings.flops / 1e9,
        "nodes": rows.iter().zip(&spots).map(|(row, spot)| {
            let mut node = table::json(row);
            node["title"] = title(row).into();
            node["layer"] = spot.layer.into();
            node["x"] = spot.x.into();
            node
        }).collect::<Vec<Value>>(),
        "edges": edges,
    });
    fill(&figures)
}

fn fill(figures: &Value) -> String {
    // Inside a script element, only `<` could end the data early.
    PAGE.replacen(MARK, &figures.to_string().replace('<', "\\u003c"), 1)
}

/// What a node is called where there is little room.
fn title(row: &Row) -> String {
    profile::short(row.operators.first().or(row.kernels.first()).map_or("", String::as_str), 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_alone_and_data_cannot_end_its_script() {
        let page = fill(&json!({"model": "</script><b>"}));
        assert!(page.contains("\\u003c/script>\\u003cb>") && !page.contains(MARK));
        for outside in ["http:", "https:", "src=", "@import", "url(", "<link"] {
            let known = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!known.contains(outside), "{outside}");
        }
    }
}
