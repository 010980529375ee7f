//! What GPUs and energy cost: the list `matrices/prices.yaml`, and `price` of a matrix, which replaces it.

use serde::{Deserialize, Deserializer, Serialize, de};

/// A price in US dollars, above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(with = "f64"))]
#[serde(transparent)]
pub(crate) struct Dollars(f64);

impl Dollars {
    pub(crate) const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        match value.is_finite() && value > 0.0 {
            true => Ok(Self(value)),
            false => Err(de::Error::custom(format!(
                "a price is a number above 0, not {value}"
            ))),
        }
    }
}

/// The prices of a matrix, in US dollars; they replace those of `matrices/prices.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MatrixPrice {
    /// Price of one GPU for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_hour: Option<Dollars>,
    /// Price of energy for a kilowatt-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kwh: Option<Dollars>,
}

impl MatrixPrice {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The list of prices `matrices/prices.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceList {
    /// Prices of GPUs. The first entry whose name the name of a GPU contains as whole words applies.
    pub(crate) gpus: Vec<GpuPrice>,
    /// Price of energy.
    pub(crate) energy: Option<EnergyPrice>,
}

/// The price of a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuPrice {
    /// Words of the name that the driver gives the GPU, such as `H100`.
    pub(crate) gpu: String,
    /// US dollars for an hour.
    pub(crate) hour: Dollars,
    /// When the price was looked up, such as `2026-11-28`.
    pub(crate) date: String,
    /// Where the price is published.
    pub(crate) source: String,
}

/// The price of energy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EnergyPrice {
    /// US dollars for a kilowatt-hour.
    pub(crate) kwh: Dollars,
    /// When the price was looked up.
    pub(crate) date: String,
    /// Where the price is published.
    pub(crate) source: String,
}

/// A price with its origin, in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatedPrice {
    pub(crate) dollars: f64,
    /// Such as `H100 at $3.35 per hour, example.org, 2026-11-28`.
    pub(crate) origin: String,
}

/// The prices that apply to a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prices {
    pub(crate) matrix: MatrixPrice,
    pub(crate) list: PriceList,
}

impl Prices {
    /// The price of an hour of a GPU with this name.
    pub(crate) fn gpu_hour(&self, gpu: Option<&str>) -> Option<StatedPrice> {
        if let Some(price) = self.matrix.gpu_hour {
            return Some(StatedPrice {
                dollars: price.get(),
                origin: format!("${} per GPU-hour, the price in the matrix file", price.get()),
            });
        }
        let gpu = gpu?;
        let entry = self.list.gpus.iter().find(|entry| has_words(gpu, &entry.gpu))?;
        Some(StatedPrice {
            dollars: entry.hour.get(),
            origin: format!(
                "{} at ${} per GPU-hour, {}, {}",
                entry.gpu,
                entry.hour.get(),
                entry.source,
                entry.date
            ),
        })
    }

    /// The price of a kilowatt-hour.
    pub(crate) fn kwh(&self) -> Option<StatedPrice> {
        if let Some(price) = self.matrix.kwh {
            return Some(StatedPrice {
                dollars: price.get(),
                origin: format!("${} per kWh, the price in the matrix file", price.get()),
            });
        }
        let entry = self.list.energy.as_ref()?;
        Some(StatedPrice {
            dollars: entry.kwh.get(),
            origin: format!("${} per kWh, {}, {}", entry.kwh.get(), entry.source, entry.date),
        })
    }
}

/// Whether `name` contains `words` as whole words, in any letter case: `NVIDIA L40S` has `l40s` and not `L40`.
fn has_words(name: &str, words: &str) -> bool {
    let split = |text: &str| -> Vec<String> {
        let is_inside = |letter: char| letter.is_ascii_alphanumeric();
        let parts = text.split(|letter: char| !is_inside(letter));
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_ascii_lowercase)
            .collect()
    };
    let (name, words) = (split(name), split(words));
    !words.is_empty() && name.windows(words.len()).any(|part| part == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(matrix: &str) -> Prices {
        let entry = |gpu: &str, hour| GpuPrice {
            gpu: gpu.to_owned(),
            hour: Dollars(hour),
            date: "2026-11-28".to_owned(),
            source: "example.org".to_owned(),
        };
        Prices {
            matrix: serde_json::from_str(matrix).unwrap(),
            list: PriceList {
                gpus: vec![
                    entry("A100 40GB", 1.0),
                    entry("A100", 2.0),
                    entry("L4", 0.5),
                    entry("L40S", 1.5),
                ],
                energy: None,
            },
        }
    }

    #[test]
    fn a_gpu_has_the_price_of_the_first_entry_whose_words_its_name_has() {
        let list = prices("{}");
        let hour = |gpu| list.gpu_hour(Some(gpu)).map(|price| price.dollars);
        assert_eq!(
            hour("NVIDIA A100-SXM4-40GB"),
            Some(2.0),
            "`40GB` does not follow `A100`"
        );
        assert_eq!(hour("NVIDIA A100 40GB PCIe"), Some(1.0));
        assert_eq!(hour("NVIDIA L40S"), Some(1.5));
        assert_eq!(hour("NVIDIA L4"), Some(0.5));
        assert_eq!(hour("NVIDIA GH200 480GB"), None);
        assert_eq!(list.gpu_hour(None), None);
        assert_eq!(list.kwh(), None);
        assert_eq!(
            list.gpu_hour(Some("NVIDIA L4")).unwrap().origin,
            "L4 at $0.5 per GPU-hour, example.org, 2026-11-28"
        );
    }

    #[test]
    fn the_price_of_a_matrix_comes_first_and_needs_no_name() {
        let own = prices(r#"{"gpu_hour": 2.5, "kwh": 0.1}"#);
        for gpu in [None, Some("NVIDIA L4")] {
            assert_eq!(own.gpu_hour(gpu).unwrap().dollars, 2.5);
        }
        assert_eq!(
            own.kwh().unwrap().origin,
            "$0.1 per kWh, the price in the matrix file"
        );
        for bad in [r#"{"gpu_hour": 0}"#, r#"{"gpu_hour": -1}"#, r#"{"hour": 1}"#] {
            assert!(serde_json::from_str::<MatrixPrice>(bad).is_err(), "{bad}");
        }
    }
}
