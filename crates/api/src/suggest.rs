//! "Did you mean": the known word that is most similar to an unknown one.

/// Words less similar than this are not suggested.
const LIKENESS_MIN: f64 = 0.75;

/// The most similar of these words, if any is similar enough.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |candidate: &str| strsim::jaro_winkler(word, candidate);
    let near = known.into_iter().map(|candidate| (alike(candidate), candidate));
    let near = near.filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// The same as the end of a sentence; empty if no word is similar enough.
#[must_use]
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    let near = nearest(word, known.iter().copied());
    near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_suggested() {
        let known = ["resize", "default", "reports"];
        assert_eq!(nearest("resise", known), Some("resize"));
        assert_eq!(nearest("report", known), Some("reports"));
        assert_eq!(nearest("img", known), None);
        assert_eq!(did_you_mean("defualt", &known), "; did you mean \"default\"?");
        assert_eq!(did_you_mean("x", &[]), "");
    }
}
