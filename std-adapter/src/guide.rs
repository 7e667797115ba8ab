#![cfg_attr(feature = "librdmacm", doc = include_str!("guide.md"))]
#![cfg_attr(
    not(feature = "librdmacm"),
    doc = "Programs for each task; told with the features `verbs` and `declared`."
)]
