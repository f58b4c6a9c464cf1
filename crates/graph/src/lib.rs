//! Graph IR: typed operators over symbolic shapes, inference, verifier, text form, passes.
