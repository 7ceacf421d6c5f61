//! The value after `=`: some tokens become a [`Value`].
//!
//! In: tokens between commas. Out: the value, or what is wrong and at which tokens. Nothing is evaluated: a value is a
//! literal, a word, or a list of these.

use super::{is_punct, start_of, stream, without_invisible_groups};
use kernwright_plan::field::Value;
use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use syn::Lit;
use syn::ext::IdentExt as _;

/// What is no value.
#[derive(Debug)]
pub(super) struct NoValue {
    /// Where.
    pub(super) tokens: TokenStream,
    /// Why, as it follows the name of the field.
    pub(super) message: String,
}

/// How many of the first tokens are a value by themselves; 0 if they begin none.
pub(super) fn whole(tokens: &[TokenTree]) -> usize {
    match tokens {
        [TokenTree::Ident(_), TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Parenthesis => {
            2
        }
        [TokenTree::Literal(_) | TokenTree::Ident(_), ..] => 1,
        [minus, TokenTree::Literal(_), ..] if is_punct(minus, '-') => 2,
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Bracket => 1,
        _ => 0,
    }
}

/// The value of some tokens. A path keeps its text, as does what no field takes, such as a character.
pub(super) fn read(tokens: &[TokenTree]) -> Result<Value, NoValue> {
    match tokens {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Bracket => list(group),
        tokens => single(tokens).map_err(|message| NoValue { tokens: stream(tokens), message }),
    }
}

/// `[local, global]`: literals and words between commas.
fn list(group: &Group) -> Result<Value, NoValue> {
    let tokens = without_invisible_groups(group.stream());
    let mut values = Vec::new();
    let mut rest = &tokens[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|token| is_punct(token, ',')).unwrap_or(rest.len());
        let item = &rest[..end];
        let at_fault = |tokens: &[TokenTree], message| Err(NoValue { tokens: stream(tokens), message });
        match item {
            [] => return at_fault(&rest[..1], "has an empty place in its list: `,` follows no value".into()),
            [TokenTree::Ident(word), TokenTree::Group(group)]
                if group.delimiter() == Delimiter::Parenthesis =>
            {
                let message = format!("is a list of literals and words: `{word}` takes no settings in it");
                return at_fault(&item[1..], message);
            }
            [TokenTree::Group(_)] => {
                let found = start_of(&item[0]);
                return at_fault(item, format!("is a list of literals and words, found `{found}` in it"));
            }
            _ => {}
        }
        let whole = whole(item);
        if let (Some(next), true) = (item.get(whole), whole > 0)
            && matches!(next, TokenTree::Ident(_) | TokenTree::Literal(_))
        {
            return at_fault(&item[whole..=whole], format!("needs a `,` before `{next}` in its list"));
        }
        match single(item) {
            Ok(value) => values.push(value),
            Err(message) => return at_fault(item, message),
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(Value::List(values))
}

fn single(tokens: &[TokenTree]) -> Result<Value, String> {
    match tokens {
        [TokenTree::Literal(literal)] => read_literal(literal, false),
        [minus, TokenTree::Literal(literal)] if is_punct(minus, '-') => read_literal(literal, true),
        [TokenTree::Ident(word)] => Ok(Value::Word(word.unraw().to_string())),
        tokens if tokens.iter().all(|token| is_punct(token, ':') || matches!(token, TokenTree::Ident(_))) => {
            Ok(Value::Text(tokens.iter().map(ToString::to_string).collect()))
        }
        _ => Err(format!("must be a literal or a word: nothing is evaluated, found `{}`", stream(tokens))),
    }
}

fn read_literal(literal: &Literal, negative: bool) -> Result<Value, String> {
    let sign = if negative { "-" } else { "" };
    let suffixed = |digits: &str| Err(format!("takes no type suffix: write `{sign}{digits}`"));
    match Lit::new(literal.clone()) {
        Lit::Int(int) if !int.suffix().is_empty() => suffixed(int.base10_digits()),
        Lit::Float(float) if !float.suffix().is_empty() => suffixed(float.base10_digits()),
        Lit::Int(int) => match format!("{sign}{}", int.base10_digits()).parse() {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => Err(format!("is out of range: `{sign}{literal}` has too many digits")),
        },
        Lit::Float(float) => match format!("{sign}{}", float.base10_digits()).parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => Err(format!("is out of range: `{sign}{literal}` is no 64-bit float")),
        },
        Lit::Str(text) if !negative => Ok(Value::Text(text.value())),
        _ => Ok(Value::Text(format!("{sign}{literal}"))),
    }
}
