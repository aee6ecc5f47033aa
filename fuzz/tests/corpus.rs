//! Runs every kept input through its target, without a fuzzer.

use std::fs;
use std::path::Path;

type Target = (&'static str, fn(&[u8]));

#[test]
fn kept_inputs_hold() {
    let targets: [Target; 4] = [
        ("lines", wavehouse_fuzz::lines),
        ("values", wavehouse_fuzz::values),
        ("block", wavehouse_fuzz::block),
        ("request", wavehouse_fuzz::request),
    ];
    for (name, run) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(&folder).expect("the corpus is there") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            run(&fs::read(&path).expect("an input"));
            count += 1;
        }
        assert!(count > 3, "{name} has inputs");
    }
}
