#![cfg_attr(feature = "verbs", doc = include_str!("coverage.md"))]
#![cfg_attr(
    not(feature = "verbs"),
    doc = "What covers each C function; told with the feature `verbs`."
)]
