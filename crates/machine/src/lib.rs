//! Descriptions of machines and of what a code generator can emit for them.
