//! Interprets plain scalars as numbers, booleans and null, if a type asks for one.

/// Whether a plain scalar means null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Interpretation of a plain scalar if no particular type is requested.
#[derive(Debug, PartialEq)]
pub(super) enum PlainScalar {
    Null,
    Bool(bool),
    Natural(u64),
    Negative(i64),
    Real(f64),
    Text,
}

/// Interprets a scalar as JSON would, so that `no`, `017` and `1_000` stay texts.
pub(super) fn classify(text: &str) -> PlainScalar {
    if is_null(text) {
        return PlainScalar::Null;
    }
    match text {
        "true" => return PlainScalar::Bool(true),
        "false" => return PlainScalar::Bool(false),
        _ => {}
    }
    if !has_odd_zero(text) && !text.starts_with('+') {
        if let Ok(number) = text.parse() {
            return PlainScalar::Natural(number);
        }
        if let Ok(number) = text.parse() {
            return PlainScalar::Negative(number);
        }
        if let Some(number) = parse_real(text) {
            return PlainScalar::Real(number);
        }
    }
    PlainScalar::Text
}

/// Parses a number; `inf` and `.inf` are infinite, `nan` is not a number.
pub(super) fn parse_real(text: &str) -> Option<f64> {
    match text {
        "inf" | "+inf" | ".inf" | "+.inf" => return Some(f64::INFINITY),
        "-inf" | "-.inf" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let is_numeric = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && text.bytes().any(|byte| byte.is_ascii_digit());
    let number: f64 = if is_numeric {
        text.parse().ok()?
    } else {
        return None;
    };
    number.is_finite().then_some(number)
}

/// Whether a number has a leading zero: some tools read `017` as 15, others as 17.
pub(super) fn has_odd_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).as_bytes();
    digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit()
}

/// Whether a key is a length in tokens, for which `4k` is 4096.
pub(super) fn counts_tokens(key: &str) -> bool {
    key.ends_with("_len")
}

/// Parses `4k` as 4096, the number of tokens that models and their flags mean by it.
pub(super) fn parse_kibi(text: &str) -> Option<u64> {
    let digits = text.strip_suffix(['k', 'K'])?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !has_odd_zero(digits);
    is_number
        .then(|| digits.parse::<u64>().ok()?.checked_mul(1024))
        .flatten()
}

/// Spells `10k` as 10000, outside of lengths in tokens.
fn thousands(text: &str) -> Option<String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => (text.strip_suffix(['m', 'M'])?, 1_000_000),
    };
    let number = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    Some(number.to_string())
}

/// The correct spelling of a number with another spelling, if it is clear.
pub(super) fn suggest_number(text: &str, whole: bool) -> Option<String> {
    let bare = text.replace(['_', ',', ' '], "");
    if bare != text
        && bare.bytes().all(|byte| byte.is_ascii_digit())
        && !bare.is_empty()
        && !has_odd_zero(&bare)
    {
        return Some(bare);
    }
    if has_odd_zero(text) {
        let digits = text.trim_start_matches('0');
        return digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.to_owned())
            .filter(|d| !d.is_empty());
    }
    if let Some(number) = thousands(text).filter(|_| whole) {
        return Some(number);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|number| number.to_string());
    }
    let number = parse_real(text)?;
    (whole && number.fract() == 0.0 && number.abs() < 1e15).then(|| format!("{number:.0}"))
}

/// Spellings of true and false in other tools.
pub(super) fn parse_bool_word(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "on" | "y" | "true" | "1" => Some(true),
        "no" | "off" | "n" | "false" | "0" => Some(false),
        _ => None,
    }
}
