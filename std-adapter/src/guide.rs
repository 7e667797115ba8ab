#![cfg_attr(feature = "verbs", doc = include_str!("guide.md"))]
#![cfg_attr(not(feature = "verbs"), doc = "Programs for each task; told with the feature `verbs`.")]
