//! `tilewright cache`: the compiled functions kept on disk.

use serde_json::{Value, json};
use tilewright_driver::Cache;
use tilewright_driver::cache::{CACHE_DIR, CACHE_LIMIT, Pruned, Stats};

use crate::failure::{Exit, Failure};
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

/// What to do with the cache.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// Print its folder: $TILEWRIGHT_CACHE_DIR, or tilewright below $XDG_CACHE_HOME or ~/.cache
    Path,
    /// Print what it holds
    Stats,
    /// Remove the functions unused for longest if it is larger than $TILEWRIGHT_CACHE_LIMIT bytes (1 GiB)
    Prune,
    /// Remove everything in it
    Clear,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(cache) = Cache::of_user().map_err(Failure::usage)? else {
        return Err(Failure::usage(format!("there is no folder for a cache: set {CACHE_DIR}, or HOME")));
    };
    let fail = |error| Failure::new(Exit::Io, format!("{}: {error}", cache.folder().display()));
    let (json, text) = match args.what {
        What::Path => (json!({}), cache.folder().display().to_string()),
        What::Stats => {
            let stats = cache.stats().map_err(fail)?;
            let limit = output::bytes(cache.limit());
            (figures(stats), format!("{}, limit {limit} ({CACHE_LIMIT})", phrase(stats)))
        }
        What::Prune => pruned(cache.prune().map_err(fail)?),
        What::Clear => pruned(cache.clear().map_err(fail)?),
    };
    if !args.json {
        return output::print(&format!("{text}\n"));
    }
    let mut object = json!({"path": cache.folder().display().to_string(), "limit_bytes": cache.limit()});
    if let (Some(object), Value::Object(json)) = (object.as_object_mut(), json) {
        object.extend(json);
    }
    output::print_json(&object)
}

fn pruned(pruned: Pruned) -> (Value, String) {
    let mut json = figures(pruned.left);
    json["removed_entries"] = pruned.removed.entries.into();
    json["removed_bytes"] = pruned.removed.bytes.into();
    (json, format!("removed {}; {} left", phrase(pruned.removed), phrase(pruned.left)))
}

fn figures(stats: Stats) -> Value {
    json!({"entries": stats.entries, "bytes": stats.bytes})
}

fn phrase(stats: Stats) -> String {
    format!("{} functions, {}", stats.entries, output::bytes(stats.bytes))
}
