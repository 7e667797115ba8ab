#![cfg_attr(feature = "librdmacm", doc = include_str!("coverage.md"))]
#![cfg_attr(
    not(feature = "librdmacm"),
    doc = "What covers each C function; told with the features `verbs` and `declared`."
)]
