//! Fields, places and mistakes of the token front end.

use super::*;

fn declaration(source: &str) -> (Declaration, Places) {
    let Attributes { declaration, places, .. } =
        read(&syn::parse_str(source).expect("the test's struct is Rust"));
    (declaration, places)
}

/// `path = value` of each field.
fn fields(attribute: &str) -> Vec<String> {
    let (declaration, _) = declaration(&format!("{attribute}\nstruct Brain;"));
    assert_eq!(declaration.problems, [], "{attribute}");
    declaration
        .fields
        .iter()
        .map(|field| match &field.value {
            Value::Flag => field.path.clone(),
            value => format!("{} = {value:?}", field.path),
        })
        .collect()
}

/// `line:column-column message` of each mistake of form.
fn mistakes(source: &str) -> Vec<String> {
    let (declaration, places) = declaration(source);
    let problems = &declaration.problems;
    problems.iter().map(|problem| located(&places.error(problem))).collect()
}

fn located(error: &syn::Error) -> String {
    let (start, end) = (error.span().start(), error.span().end());
    format!("{}:{}-{} {error}", start.line, start.column, end.column)
}

#[test]
fn sections_flags_and_nested_values_become_fields() {
    assert_eq!(
        fields("#[model(vocab = 32_000, tied, norm = rms(eps = 1e-5,), r#type = r#fn)]\n#[doc = \"x\"]"),
        [
            "model",
            "model.vocab = Int(32000)",
            "model.tied",
            "model.norm = Word(\"rms\")",
            "model.norm.eps = Float(1e-5)",
            "model.type = Word(\"fn\")",
        ]
    );
    assert_eq!(
        fields(
            "#[attention(rope(theta = 10_000.0, scaling = yarn(factor = 4)))] #[target(sm_130(like = sm_90a))]"
        ),
        [
            "attention",
            "attention.rope",
            "attention.rope.theta = Float(10000.0)",
            "attention.rope.scaling = Word(\"yarn\")",
            "attention.rope.scaling.factor = Int(4)",
            "target",
            "target.sm_130",
            "target.sm_130.like = Word(\"sm_90a\")",
        ]
    );
    assert_eq!(
        fields("#[attention(local(window = 4096, rope(theta = 1e4)), global(no_rope,),)]"),
        [
            "attention",
            "attention.local",
            "attention.local.window = Int(4096)",
            "attention.local.rope",
            "attention.local.rope.theta = Float(10000.0)",
            "attention.global",
            "attention.global.no_rope",
        ]
    );
    assert_eq!(fields("#[model]"), ["model"]);
    assert_eq!(fields("#[model()]"), ["model"]);
}

#[test]
fn every_kind_of_value_is_taken() {
    for (value, read) in [
        ("-3", "Int(-3)"),
        ("0x10", "Int(16)"),
        ("-0.5", "Float(-0.5)"),
        ("\"two words\"", "Text(\"two words\")"),
        ("true", "Word(\"true\")"),
        ("'c'", "Text(\"'c'\")"),
        ("::a::b", "Text(\"::a::b\")"),
        (
            "[local,r#local , \"two words\", -3,]",
            "List([Word(\"local\"), Word(\"local\"), Text(\"two words\"), Int(-3)])",
        ),
        ("[]", "List([])"),
        ("170141183460469231731687303715884105727", "Int(170141183460469231731687303715884105727)"),
    ] {
        assert_eq!(fields(&format!("#[model(x = {value})]")), ["model", &format!("model.x = {read}")]);
    }
}

#[test]
fn values_from_a_macro_variable_are_unwrapped() {
    let number = TokenTree::Group(Group::new(Delimiter::None, "768".parse().expect("tokens")));
    let tokens = without_invisible_groups([number].into_iter().collect());
    assert_eq!(value::read(&tokens).expect("it is a number"), Value::Int(768));
    let word = TokenTree::Group(Group::new(Delimiter::None, "local".parse().expect("tokens")));
    let list = TokenTree::Group(Group::new(Delimiter::Bracket, word.into()));
    let list = value::read(&[list]).expect("it is a list");
    assert_eq!(list, Value::List(vec![Value::Word("local".into())]));
}

#[test]
fn places_map_back_to_the_tokens() {
    let source = "#[model(vocab = 1,\n        norm = rms(eps = ::a))]\nstruct Brain;";
    let (declaration, places) = declaration(source);
    let at = |path: &str, of: fn(&Field) -> Place| {
        let field = declaration.fields.iter().find(|field| field.path == path).expect("the field is there");
        located(&places.error(&Problem { at: Some(of(field)), message: String::new() }))
    };
    assert_eq!(at("model", |field| field.at), "1:2-7 ");
    assert_eq!(at("model.vocab", |field| field.at), "1:8-13 ");
    assert_eq!(at("model.vocab", |field| field.value_at), "1:16-17 ");
    assert_eq!(at("model.norm", |field| field.value_at), "2:15-18 ");
    assert_eq!(at("model.norm.eps", |field| field.at), "2:19-22 ");
    assert_eq!(at("model.norm.eps", |field| field.value_at), "2:25-28 ");
    let missing = Problem { at: None, message: "m".into() };
    assert_eq!(located(&places.error(&missing)), "3:7-12 m");
}

#[test]
fn mistakes_of_form_are_found_at_their_tokens() {
    for (attribute, mistake) in [
        ("#[model(vocab = )]", "1:14-15 `vocab` has no value after `=`"),
        ("#[model(768)]", "1:8-11 expected a name, found `768`"),
        ("#[model(,)]", "1:8-9 expected a name, found `,`"),
        ("#[model(vocab: 3)]", "1:13-14 expected `,`, `=` or `(...)` after `vocab`, found `:`"),
        ("#[model(tied vocab = 3)]", "1:13-18 expected `,` before `vocab`"),
        ("#[model(vocab = 3 tied)]", "1:18-22 expected `,` before `tied`"),
        ("#[model(norm = rms(eps = 1e-5) tied)]", "1:31-35 expected `,` before `tied`"),
        ("#[model(rope(theta = 1.0) = 3)]", "1:26-27 expected `,` before `=`"),
        ("#[model(vocab = 16u32)]", "1:16-21 `vocab` takes no type suffix: write `16`"),
        ("#[model(eps = -1e-5f32)]", "1:14-22 `eps` takes no type suffix: write `-1e-5`"),
        ("#[model(eps = 1e999)]", "1:14-19 `eps` is out of range: `1e999` is no 64-bit float"),
        (
            "#[model(d_ff = 4 * D)]",
            "1:15-20 `d_ff` must be a literal or a word: nothing is evaluated, found `4 * D`",
        ),
        (
            "#[model(x = [a, 2 * 2])]",
            "1:16-21 `x` must be a literal or a word: nothing is evaluated, found `2 * 2`",
        ),
        ("#[model(x = [a, 3u8])]", "1:16-19 `x` takes no type suffix: write `3`"),
        ("#[model(x = [a,, b])]", "1:15-16 `x` has an empty place in its list: `,` follows no value"),
        ("#[model(x = [,])]", "1:13-14 `x` has an empty place in its list: `,` follows no value"),
        ("#[model(x = [a b])]", "1:15-16 `x` needs a `,` before `b` in its list"),
        ("#[model(x = [-1 2])]", "1:16-17 `x` needs a `,` before `2` in its list"),
        ("#[model(x = [a, [b]])]", "1:16-19 `x` is a list of literals and words, found `[` in it"),
        (
            "#[model(x = [a(b = 1)])]",
            "1:14-21 `x` is a list of literals and words: `a` takes no settings in it",
        ),
        ("#[model(x = {a})]", "1:12-15 `x` must be a literal or a word: nothing is evaluated, found `{ a }`"),
        ("#[model(x = [a] tied)]", "1:16-20 expected `,` before `tied`"),
        ("#[model(x = a(b = ))]", "1:16-17 `b` has no value after `=`"),
        ("#[model(x(y(z: 1)))]", "1:13-14 expected `,`, `=` or `(...)` after `z`, found `:`"),
        ("#[model(a(b(c(d(e(f(g(h(i(j))))))))))]", "1:25-28 settings nest at most 8 deep"),
        ("#[model = 3]", "1:2-11 expected `#[model(...)]`"),
        ("#[model[tied]]", "1:2-13 expected `#[model(...)]`"),
    ] {
        assert_eq!(mistakes(&format!("{attribute} struct Brain;")), [mistake], "{attribute}");
    }
    let huge = mistakes("#[model(vocab = 999999999999999999999999999999999999999999)] struct Brain;");
    assert!(huge[0].contains("`vocab` is out of range"), "{huge:?}");
}

#[test]
fn the_facade_is_where_the_attribute_says() {
    for (attribute, path) in [
        ("#[model(tied)]", ":: kernwright"),
        ("#[model(crate = kw, tied)]", "kw"),
        ("#[model(tied, crate = ::kw::r#mod)]", ":: kw :: r#mod"),
        ("#[model(crate = crate::my_facade::kernwright)]", "crate :: my_facade :: kernwright"),
    ] {
        let input = syn::parse_str(&format!("{attribute} struct Brain;")).expect("it is Rust");
        let attributes = read(&input);
        assert_eq!(attributes.declaration.problems, [], "{attribute}");
        assert_eq!(attributes.facade.to_string(), path);
        assert!(attributes.declaration.fields.iter().all(|field| field.path != FACADE));
    }
    let wanted = "`crate` must be a path: `crate = my_facade::kernwright`, found";
    for (attribute, mistake) in [
        ("#[model(crate)]", format!("1:8-13 {wanted} nothing")),
        ("#[model(crate = )]", format!("1:14-15 {wanted} `=`")),
        ("#[model(crate = \"kw\")]", format!("1:14-20 {wanted} `= \"kw\"`")),
        ("#[model(crate = kw::)]", format!("1:14-20 {wanted} `= kw ::`")),
        ("#[model(crate(kw))]", format!("1:13-17 {wanted} `(kw)`")),
        ("#[model(crate = kw, crate = kw)]", "1:20-25 `crate` is given twice".to_owned()),
        ("#[model(crate = kw tied)]", "1:19-23 expected `,` before `tied`".to_owned()),
    ] {
        assert_eq!(mistakes(&format!("{attribute} struct Brain;")), [mistake], "{attribute}");
    }
}

#[test]
fn one_mistake_does_not_hide_the_next() {
    let (declaration, _) = declaration("#[model(vocab = 3 tied, layers =, d_model = 8)] struct Brain;");
    let paths: Vec<_> = declaration.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["model", "model.vocab", "model.tied", "model.layers", "model.d_model"]);
    assert_eq!(declaration.problems.len(), 2);
}

#[test]
fn only_a_plain_struct_is_a_model() {
    assert_eq!(mistakes("enum Brain { A }"), ["1:0-4 a model is declared on a `struct`, found an `enum`"]);
    assert_eq!(mistakes("struct Brain<T, const N: usize>(T);").len(), 1);
    assert_eq!(
        mistakes("struct Brain { #[model(tied)] a: u8 }"),
        ["1:17-22 `#[model(...)]` belongs on the struct, not on one of its fields"]
    );
    assert_eq!(
        mistakes("#[model(tied)] #[model(vocab = 3)] struct Brain { a: u8 }"),
        ["1:17-22 `#[model(...)]` is written twice: put all its fields in one"]
    );
}

#[test]
fn mistakes_of_form_and_of_meaning_come_together_and_once() {
    let (declaration, places) = declaration(
        "#[model(vocab = , d_model = 100, layers = 1)]\n#[attention(heads = 4, head_dim = 16)]\n\
         #[feed_forward(swiglu, d_ff = 16usize)]\nstruct Brain;",
    );
    let problems = declaration.shape().expect_err("there are three mistakes");
    let errors: Vec<_> = problems.iter().map(|problem| located(&places.error(problem))).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].starts_with("1:14-15 `vocab` has no value"), "{errors:?}");
    assert!(errors[1].starts_with("1:28-31 `d_model` must be a multiple of 8"), "{errors:?}");
    assert!(errors[2].starts_with("3:30-37 `d_ff` takes no type suffix"), "{errors:?}");
    assert_eq!(places.errors(&problems).expect("some").into_iter().count(), 3);
}
