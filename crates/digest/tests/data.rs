//! Plain data: equal where and only where it is written alike.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Serialize;
use tilewright_digest::Digest;

#[derive(Clone, Debug, PartialEq, Serialize)]
enum Data {
    Nothing,
    Unit(()),
    Integer(i64),
    Real(u32),
    Text(String),
    Pair(Box<Data>, Box<Data>),
    Record { first: Option<Box<Data>>, second: bool },
    List(Vec<Data>),
    Map(BTreeMap<String, Data>),
}

fn data() -> impl Strategy<Value = Data> {
    let leaf = prop_oneof![
        Just(Data::Nothing),
        Just(Data::Unit(())),
        (-2i64..3).prop_map(Data::Integer),
        (0u32..2).prop_map(Data::Real),
        "[a-b]{0,2}".prop_map(Data::Text),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Data::Pair(a.into(), b.into())),
            (prop::option::of(inner.clone()), any::<bool>())
                .prop_map(|(first, second)| Data::Record { first: first.map(Box::new), second }),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Data::List),
            prop::collection::btree_map("[a-b]{0,1}", inner, 0..3).prop_map(Data::Map),
        ]
    })
}

fn digest<T: Serialize + ?Sized>(value: &T) -> Digest {
    Digest::of_data("test", value)
}

proptest! {
    #[test]
    fn digests_are_equal_where_values_are(a in data(), b in data()) {
        prop_assert_eq!(digest(&a) == digest(&b), a == b, "{:?} and {:?}", a, b);
        prop_assert_eq!(digest(&a), digest(&a.clone()));
    }

    #[test]
    fn the_order_of_a_map_is_incidental(entries in prop::collection::btree_map(any::<u16>(), any::<String>(), 0..9)) {
        let hashed: HashMap<_, _> = entries.clone().into_iter().collect();
        prop_assert_eq!(digest(&entries), digest(&hashed));
    }
}

#[test]
fn what_is_incidental_to_data() {
    assert_eq!(digest(&7u8), digest(&7i64));
    assert_ne!(digest(&7u8), digest(&-7i64));
    assert_ne!(digest(&u64::MAX), digest(&-1i64));
    assert_ne!(digest(&0.0f64), digest(&-0.0f64));
    assert_ne!(digest(&1.0f32), digest(&1.0f64));
    assert_ne!(digest("ab"), digest(&("a", "b")));
    assert_ne!(digest(&Some(1)), digest(&1));
    assert_ne!(digest(&Some(None::<u8>)), digest(&None::<Option<u8>>));
    assert_ne!(Digest::of_data("one", "x"), Digest::of_data("other", "x"));
}

/// Long values pass through in pieces, also inside of a map.
#[test]
fn long_values_count_to_the_end() {
    let long = |last: u8| {
        let mut bytes = vec![0u8; 20_000];
        bytes.push(last);
        bytes
    };
    let map = |last| BTreeMap::from([("key", (long(last), String::from_utf8(long(last)).unwrap()))]);
    assert_eq!(digest(&map(1)), digest(&map(1)));
    assert_ne!(digest(&map(1)), digest(&map(2)));
}

#[test]
fn the_encoding_is_pinned() {
    let value = Data::Record {
        first: Some(Box::new(Data::Map(BTreeMap::from([(
            "k".into(),
            Data::List(vec![Data::Integer(-300)]),
        )])))),
        second: true,
    };
    assert_eq!(
        digest(&value).to_string(),
        "1675cc6f1eb60e65a0180384dc3088c74108b99447caea4f9f9e3968549f0bf7"
    );
    assert_eq!(Digest::of("kind", |_| {}).short(4), "a650fa53");
}

#[test]
fn a_digest_is_serialised_as_its_digits() {
    let digest = digest("x");
    let text = serde_json::to_string(&digest).unwrap();
    assert_eq!(text, format!("\"{digest}\""));
    assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
    for bad in [&text[..65], &text.to_uppercase(), "\"\"", "7"] {
        assert!(serde_json::from_str::<Digest>(bad).is_err(), "{bad}");
    }
}
