//! The compiler and the loader speak of the same features of processors, by the same names.

use std::collections::BTreeSet;

use tilewright_driver::machine::{Arch, Feature, Machine};
use tilewright_driver::runtime::artifact::ImageDef;
use tilewright_driver::runtime::isa::{DETECTABLE, Isa};

/// An architecture as triples and the loader name it.
fn name_of(arch: Arch) -> &'static str {
    arch.triple().split('-').next().unwrap_or_default()
}

#[test]
fn the_loader_finds_the_features_that_code_may_use_and_no_others() {
    for arch in Arch::ALL {
        let ours = Feature::ALL.iter().filter(|feature| feature.arch() == arch && feature.is_detectable());
        let ours: BTreeSet<&str> = ours.map(|feature| feature.name()).collect();
        let (_, theirs) =
            DETECTABLE.iter().find(|(name, _)| *name == name_of(arch)).expect("each architecture has a row");
        let distinct: BTreeSet<&str> = theirs.iter().copied().collect();
        assert_eq!(ours, distinct, "{arch}");
        assert_eq!(distinct.len(), theirs.len(), "{arch}: a name twice");
    }
    assert_eq!(DETECTABLE.len(), Arch::ALL.len());
}

#[test]
fn code_for_any_detectable_feature_is_taken_where_the_processor_has_it() {
    for (arch, features) in DETECTABLE {
        let features = features.iter().map(|feature| (*feature).to_string()).collect();
        let isa = Isa { arch: (*arch).to_string(), features };
        for feature in Feature::ALL.iter().filter(|feature| name_of(feature.arch()) == *arch) {
            let machine = Machine::with_features(feature.arch(), [*feature].into_iter().collect());
            let features = tilewright_driver::isa(&machine).features;
            let image = ImageDef { triple: feature.arch().triple().into(), features, ..ImageDef::default() };
            // What a feature requires may be undetectable as well.
            assert_eq!(isa.choose(&[image]).is_ok(), feature.is_detectable(), "{}", feature.name());
        }
    }
}

#[test]
fn compiler_and_loader_agree_on_this_machine() {
    let compiler = tilewright_driver::isa(&Machine::host());
    let loader = Isa::native();
    let sorted = |isa: &Isa| isa.features.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!((&compiler.arch, sorted(&compiler)), (&loader.arch, sorted(&loader)));
}
