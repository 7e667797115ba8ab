//! Says which RDMA devices this machine has.

fn main() -> Result<(), nanoverbs::CallError> {
    let names = nanoverbs::devices()?;
    println!("{} RDMA devices", names.len());
    for name in names {
        println!("{name}");
    }
    Ok(())
}
