//! How far a teacher agrees with gold labels: does it give evidence the higher grades?

use std::collections::BTreeMap;

use serde::Serialize;

/// Grades of evidence and of other turns, by request.
#[derive(Debug, Clone, Default)]
pub struct Agreement {
    requests: BTreeMap<String, [Vec<f64>; 2]>,
}

/// The agreement in figures, over requests in which both evidence and other turns are graded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgreementReport {
    pub requests: usize,
    pub evidence: usize,
    pub others: usize,
    pub mean_grade_of_evidence: f64,
    pub mean_grade_of_others: f64,
    /// The chance that a turn of evidence has a higher grade than another turn of its pool, a tie counting half; the mean over
    /// requests. 0.5: the grades say nothing.
    pub auc: f64,
}

impl Agreement {
    pub fn add(&mut self, request: &str, grade: f64, evidence: bool) {
        if !self.requests.contains_key(request) {
            self.requests.insert(request.to_string(), Default::default());
        }
        if let Some(grades) = self.requests.get_mut(request) {
            grades[usize::from(evidence)].push(grade);
        }
    }

    /// None where no request has both evidence and other turns.
    pub fn report(&self) -> Option<AgreementReport> {
        let both: Vec<_> =
            self.requests.values().filter(|[others, evidence]| !others.is_empty() && !evidence.is_empty()).collect();
        let mean = |of: &dyn Fn(&[Vec<f64>; 2]) -> &Vec<f64>| {
            let all: Vec<f64> = both.iter().flat_map(|r| of(r)).copied().collect();
            (all.len(), all.iter().sum::<f64>() / all.len().max(1) as f64)
        };
        if both.is_empty() {
            return None;
        }
        let ((others, mean_grade_of_others), (evidence, mean_grade_of_evidence)) = (mean(&|r| &r[0]), mean(&|r| &r[1]));
        let auc = both.iter().map(|[others, evidence]| above(evidence, others)).sum::<f64>() / both.len() as f64;
        Some(AgreementReport {
            requests: both.len(),
            evidence,
            others,
            mean_grade_of_evidence,
            mean_grade_of_others,
            auc,
        })
    }
}

fn above(evidence: &[f64], others: &[f64]) -> f64 {
    let won = |e: &f64, o: &f64| f64::from(u8::from(e > o)) + 0.5 * f64::from(u8::from(e == o));
    let wins: f64 = evidence.iter().flat_map(|e| others.iter().map(move |o| won(e, o))).sum();
    wins / (evidence.len() * others.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_counted_pair_by_pair_and_request_by_request() {
        let mut agreement = Agreement::default();
        // Evidence 9 against 3 and 9: one win, one tie, 0.75. Evidence 1 against 5: 0. No evidence: left out.
        for (request, grade, evidence) in [
            ("a", 9.0, true),
            ("a", 3.0, false),
            ("a", 9.0, false),
            ("b", 1.0, true),
            ("b", 5.0, false),
            ("c", 10.0, false),
        ] {
            agreement.add(request, grade, evidence);
        }
        let report = agreement.report().unwrap();
        assert_eq!((report.requests, report.evidence, report.others, report.auc), (2, 2, 3, 0.375));
        assert_eq!((report.mean_grade_of_evidence, report.mean_grade_of_others), (5.0, 17.0 / 3.0));
        assert!(Agreement::default().report().is_none());
    }
}
