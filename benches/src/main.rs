//! `make bench`: everything is measured in one run, and the bars of the design are held against it.

mod bars;
mod bed;
mod crates;
mod fixed;
mod growth;
mod guest;
mod instructions;
mod object;
mod plot;
mod report;
mod rings;
mod tail;
mod ticks;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["count", plan, reach] => instructions::child(&object::load(), plan, *reach == "all"),
        ["check"] => check(),
        ["cold"] => {
            object::compile();
            let objects = object::load();
            let mut rows = bars::cold(&objects);
            rows.extend(growth::receives(&objects, &instructions::Counts::new()));
            report::print(&rows);
        }
        ["publish"] => report::publish(),
        [] => everything(),
        _ => {
            eprintln!("usage: bench [check | cold | publish]");
            std::process::exit(2);
        }
    }
}

/// The instruction bars alone, with limits that a slower hot path does not pass.
fn check() {
    object::compile();
    let objects = object::load();
    bed::check(&objects.provider, &objects.entries);
    let Some(counts) = instructions::count(false) else {
        println!("skipped: bench-check (valgrind is not installed)");
        return;
    };
    report::print(&bars::instructions(&objects, &counts));
    let slower = bars::slower(&objects, &counts);
    for line in &slower {
        eprintln!("bench-check: {line}");
    }
    if !slower.is_empty() {
        std::process::exit(1);
    }
}

fn everything() {
    object::compile();
    let objects = object::load();
    bed::check(&objects.provider, &objects.entries);
    let mut rows = Vec::new();
    let mut skipped = objects.skipped.clone();
    let counts = instructions::count(true).unwrap_or_else(|| {
        skipped.push("bars of instructions: valgrind is not installed".to_owned());
        instructions::Counts::new()
    });
    rows.extend(bars::instructions(&objects, &counts));
    let (more, series) = bars::ticks(&objects);
    rows.extend(more);
    plot::chains(&objects);
    rows.extend(crates::rows(&objects, &counts));
    rows.extend(growth::rows(&objects, &counts));
    rows.extend(rings::rows(&mut skipped));
    rows.extend(tail::rows(&objects));
    rows.extend(fixed::memory());
    rows.extend(fixed::code(&mut skipped));
    rows.extend(fixed::steady(&mut skipped));
    rows.sort_by_key(|row| order(row.bar));
    bars::print(&objects, &counts, &series);
    report::print(&rows);
    report::write(&rows, &skipped);
    report::write_markdown(&rows);
    for line in &skipped {
        println!("skipped: {line}");
    }
}

/// "1" before "1b" before "2", "7" before "7.2".
fn order(bar: &str) -> (u32, &str) {
    let digits = bar.find(|c: char| !c.is_ascii_digit()).unwrap_or(bar.len());
    let (digits, rest) = bar.split_at(digits);
    (digits.parse().unwrap_or(0), rest)
}
