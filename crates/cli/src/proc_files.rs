//! Files below `/proc`.

/// The value of the first line `KEY : VALUE`.
pub(crate) fn value_of(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_string())
    })
}
