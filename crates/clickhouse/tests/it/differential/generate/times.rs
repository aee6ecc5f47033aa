//! Dates and times near every edge: of the calendar, of the columns, of daylight saving, of the grammar.

use super::{Random, digits};
use crate::differential::json::{Json, number, text};

/// Counts of days, seconds and ticks.
const COUNTS: &[&str] = &[
    "0",
    "1",
    "-1",
    "123456789",
    "1735689600",
    "4294967295",
    "4294967296",
    "9223372036",
    "10413791999",
    "1735689600123",
    "1735689600123456",
    "1735689600123456789",
    "-2208988800",
    "-2208988801",
    "1735689600.5",
    "10413792000000",
    "9223372036854775807",
    "20260131",
    "20260131120000",
    "2026",
];

/// Forms that mean something to people, or to other programs.
const WORDS: &[&str] = &[
    "Jan 5 2026",
    "5 January 2026",
    "Mon, 05 Jan 2026 10:11:12 GMT",
    "01/02/2026",
    "2026-01-05T10:11:12 PM",
    "10:11:12",
    "2026-W01-1",
    "2026-005",
    "2026-01",
    "2026-01-05T10",
    "2026-01-05 10:11:12 CET",
    "now",
];

/// Local times at which some zone's clocks are put forward or back.
const CHANGES: &[&str] = &[
    "2026-03-29 02:30:00",
    "2026-03-29 01:59:59",
    "2026-10-25 02:30:00",
    "2026-10-25 03:00:00",
    "2026-03-08 02:15:00",
    "2026-11-01 01:30:00",
    "1945-09-01 00:00:00",
    "1916-06-14 23:30:00",
];

pub(super) fn date(random: &mut Random) -> String {
    let year = random.pick(&[
        "0000", "0001", "1583", "1899", "1900", "1969", "1970", "1999", "2000", "2024", "2026", "2100",
        "2105", "2106", "2149", "2150", "2262", "2299", "2300", "9999",
    ]);
    let month = random.pick(&["01", "02", "03", "06", "10", "11", "12", "00", "13", "1"]);
    let day = random.pick(&["01", "02", "05", "06", "07", "08", "28", "29", "30", "31", "32", "00", "5"]);
    match random.below(12) {
        0 => format!("{year}{month}{day}"),
        1 => format!("{year}/{month}/{day}"),
        _ => format!("{year}-{month}-{day}"),
    }
}

fn clock(random: &mut Random) -> String {
    let hour = random.pick(&["00", "01", "02", "03", "11", "12", "23", "24", "25", "7"]);
    let sixtieth = ["00", "01", "15", "28", "30", "59", "60", "5"];
    let (minute, second) = (random.pick(&sixtieth), random.pick(&sixtieth));
    if random.chance(15) { format!("{hour}:{minute}") } else { format!("{hour}:{minute}:{second}") }
}

pub(super) fn moment(random: &mut Random) -> Json {
    match random.below(12) {
        0 => number(random.pick(COUNTS)),
        1 => text(random.pick(COUNTS)),
        2 => text(date(random)),
        3 => text(random.pick(WORDS)),
        4 => text(random.pick(CHANGES)),
        _ => {
            let between = random.pick(&[" ", "T", "T", "t", "  "]);
            let fraction = match random.below(4) {
                0 => format!(".{}", digits(random).get(..12).map_or_else(|| digits(random), str::to_owned)),
                1 => random.pick(&[".5", ".999999999", ".000000001", ".", ",5"]).to_owned(),
                _ => String::new(),
            };
            let zone = random.pick(&[
                "",
                "",
                "",
                "Z",
                "Z",
                "z",
                " UTC",
                "UTC",
                "GMT",
                " GMT",
                "+00:00",
                "+02:00",
                "-0530",
                "+14",
                "+23:59",
                " +01:00",
                "+1",
                "+25:00",
                "+01:60",
                " Europe/Berlin",
                "-00:00",
            ]);
            text(format!("{}{between}{}{fraction}{zone}", date(random), clock(random)))
        }
    }
}

pub(super) fn time_of_day(random: &mut Random) -> Json {
    match random.below(5) {
        0 => number(random.pick(&[
            "0",
            "1",
            "-1",
            "43200",
            "3599999",
            "3600000",
            "-3599999",
            "43200000",
            "3599999999",
            "3599999999999999",
            "3600000000000000",
            "1.5",
            "99999999999",
        ])),
        1 => text(random.pick(&[
            "12",
            "43200",
            "12:00",
            "-5",
            "999:59:59",
            "1000:00:00",
            "-999:59:59",
            "99:99:99",
        ])),
        _ => {
            let sign = random.pick(&["", "", "-", "+"]);
            let fraction = random.pick(&["", "", ".5", ".999", ".999999999", ".9999999999", "."]);
            text(format!("{sign}{}{fraction}", clock(random)))
        }
    }
}
