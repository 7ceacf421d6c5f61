use kernwright::Transformer;

#[derive(Transformer)]
struct Brain;

fn main() {}
