use kernwright::Transformer;

#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2)]
#[attention(heads = 4)]
#[feed_forward(swiglu, d_ff = 176)]
enum Choice {
    One,
}

#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2)]
#[attention(heads = 4)]
#[feed_forward(swiglu, d_ff = 176)]
union Either {
    one: u8,
}

fn main() {}
