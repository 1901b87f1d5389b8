//! What colours look like: contrast as WCAG 2.2 defines it, and to eyes without red or green.

use super::*;

/// Contrast that WCAG 2.2 requires of text (success criterion 1.4.3).
const READABLE: f64 = 4.5;

/// Least distance of the tones of states (CIE 1976, in L*a*b*) to eyes without red or without
/// green. Colours side by side are told apart from about 2.3 on.
const APART: f64 = 25.0;

/// Tones that have colours of their own.
const TONES: [Tone; 6] = [Tone::Dim, Tone::Good, Tone::Warn, Tone::Bad, Tone::Title, Tone::Graph];

/// Black, Campbell, the dark themes of Visual Studio Code and Atom, Solarized, Tango, Ubuntu.
const DARK: [u32; 7] =
    [0x00_00_00, 0x0c_0c_0c, 0x1e_1e_1e, 0x28_2c_34, 0x00_2b_36, 0x2e_34_36, 0x30_0a_24];

/// White, Solarized, Tango.
const LIGHT: [u32; 3] = [0xff_ff_ff, 0xfd_f6_e3, 0xee_ee_ec];

/// The 16 colours of a terminal.
struct Terminal {
    name: &'static str,
    /// In hexadecimal digits.
    colors: &'static str,
    palette: Palette,
    background: u32,
}

const TERMINALS: [Terminal; 5] = [
    // XTerm-col.ad of xterm.
    Terminal {
        name: "xterm",
        colors: "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 \
                 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
        palette: Palette::Ansi,
        background: 0x00_00_00,
    },
    // The colours of VGA, default_red and others in drivers/tty/vt/vt.c of Linux.
    Terminal {
        name: "Linux console",
        colors: "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa \
                 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
        palette: Palette::Console,
        background: 0x00_00_00,
    },
    // Campbell in defaults.json of Windows Terminal.
    Terminal {
        name: "Windows Terminal",
        colors: "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc \
                 767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
        palette: Palette::Ansi,
        background: 0x0c_0c_0c,
    },
    // https://ethanschoonover.com/solarized, the values.
    Terminal {
        name: "Solarized dark",
        colors: "073642 dc322f 859900 b58900 268bd2 d33682 2aa198 eee8d5 \
                 002b36 cb4b16 586e75 657b83 839496 6c71c4 93a1a1 fdf6e3",
        palette: Palette::Ansi,
        background: 0x00_2b_36,
    },
    // The palette Tango of GNOME Terminal, in its profile editor.
    Terminal {
        name: "GNOME Terminal",
        colors: "2e3436 cc0000 4e9a06 c4a000 3465a4 75507b 06989a d3d7cf \
                 555753 ef2929 8ae234 fce94f 729fcf ad7fa8 34e2e2 eeeeec",
        palette: Palette::Ansi,
        background: 0x00_00_00,
    },
];

impl Terminal {
    fn color(&self, index: usize) -> u32 {
        let color = self.colors.split_ascii_whitespace().nth(index);
        u32::from_str_radix(color.unwrap(), 16).unwrap()
    }

    /// A style as this terminal draws it, where the user may have bold text in bright colours; `None`
    /// without a colour.
    fn drawn(&self, style: Style, bold_is_bright: bool) -> Option<u32> {
        let bright = bold_is_bright && style.add_modifier.contains(Modifier::BOLD);
        let index = match style.fg? {
            Color::Green => 2,
            Color::Yellow => 3,
            Color::Cyan => 6,
            Color::LightRed => return Some(self.color(9)),
            Color::LightYellow => return Some(self.color(11)),
            other => panic!("{other} is not in the theme"),
        };
        Some(self.color(if bright { index + 8 } else { index }))
    }
}

/// A colour that is the same on all terminals.
fn fixed(color: Color) -> u32 {
    match color {
        Color::Rgb(red, green, blue) => u32::from_be_bytes([0, red, green, blue]),
        // The cube and the greys of the 256 colours, as in 256colres.pl of xterm.
        Color::Indexed(index @ 16..=231) => {
            let step = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            u32::from_be_bytes([0, step(cube / 36), step(cube / 6 % 6), step(cube % 6)])
        }
        Color::Indexed(index @ 232..) => {
            let grey = 8 + 10 * (index - 232);
            u32::from_be_bytes([0, grey, grey, grey])
        }
        other => panic!("{other} depends on the terminal"),
    }
}

fn styles(palette: Palette) -> impl Iterator<Item = (Tone, Style)> {
    TONES.into_iter().map(move |tone| (tone, Theme { palette, ascii: false }.style(tone)))
}

/// Parts of red, green and blue light, 0 to 1.
fn light(color: u32) -> [f64; 3] {
    let [_, parts @ ..] = color.to_be_bytes();
    parts.map(|part| match f64::from(part) / 255.0 {
        part if part <= 0.040_45 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    })
}

fn times(matrix: [[f64; 3]; 3], [a, b, c]: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * a + row[1] * b + row[2] * c)
}

/// From light of sRGB to CIE XYZ, IEC 61966-2-1.
const XYZ: [[f64; 3]; 3] =
    [[0.412_4, 0.357_6, 0.180_5], [0.212_6, 0.715_2, 0.072_2], [0.019_3, 0.119_2, 0.950_5]];

fn contrast(a: u32, b: u32) -> f64 {
    let [a, b] = [a, b].map(|color| times(XYZ, light(color))[1] + 0.05);
    a.max(b) / a.min(b)
}

/// L*a*b* of light, for the white D65.
fn lab(light: [f64; 3]) -> [f64; 3] {
    let [x, y, z] = times(XYZ, light.map(|part| part.clamp(0.0, 1.0)));
    let root = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let [x, y, z] = [x / 0.950_5, y, z / 1.089].map(root);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// What eyes without red, and without green, make of light: Machado, Oliveira and Fernandes, "A
/// Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.
const WITHOUT: [(&str, [[f64; 3]; 3]); 2] = [
    (
        "protanopia",
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ),
];

fn distance(a: u32, b: u32, seen: [[f64; 3]; 3]) -> f64 {
    let [a, b] = [a, b].map(|color| lab(times(seen, light(color))));
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn contrast_is_that_of_wcag() {
    let about = |contrast: f64, known: f64| (contrast - known).abs() < 0.01;
    assert!(about(contrast(0, 0xff_ff_ff), 21.0) && about(contrast(7, 7), 1.0));
    // Blue, as labels once were on xterm.
    assert!(about(contrast(0x00_00_ee, 0), 2.23));
}

#[test]
fn colours_of_a_theme_can_be_read_on_its_backgrounds() {
    let themes = [
        (Palette::Truecolor, &DARK[..]),
        (Palette::Colorblind, &DARK),
        (Palette::TruecolorLight, &LIGHT),
    ];
    for (palette, backgrounds) in themes {
        for (tone, style) in styles(palette) {
            let color = fixed(style.fg.unwrap());
            for background in backgrounds {
                let contrast = contrast(color, *background);
                let what = format!("{palette} {tone:?} #{color:06x} on #{background:06x}");
                assert!(contrast >= READABLE, "{what}: {contrast:.2}");
            }
        }
    }
}

#[test]
fn colours_of_terminals_can_be_read_on_black() {
    for terminal in &TERMINALS {
        for background in [0, terminal.background] {
            for (tone, style) in styles(terminal.palette) {
                for bright in [false, true] {
                    let Some(color) = terminal.drawn(style, bright) else { continue };
                    // No red of Solarized reaches it on its own background.
                    let solarized = background == 0x00_2b_36 && tone == Tone::Bad;
                    let least = if solarized { 3.0 } else { READABLE };
                    let contrast = contrast(color, background);
                    let what = format!("{}: {tone:?} on #{background:06x}", terminal.name);
                    assert!(contrast >= least, "{what}: {contrast:.2}");
                }
            }
        }
    }
}

#[test]
fn states_stay_apart_without_red_or_without_green() {
    for palette in [Palette::Colorblind, Palette::TruecolorLight] {
        let theme = Theme { palette, ascii: false };
        let color = |tone| fixed(theme.style(tone).fg.unwrap());
        let states = [Tone::Good, Tone::Warn, Tone::Bad];
        for (name, seen) in WITHOUT {
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let distance = distance(color(states[a]), color(states[b]), seen);
                let what = format!("{palette}, {name}: {:?} and {:?}", states[a], states[b]);
                assert!(distance >= APART, "{what}: {distance:.1}");
            }
        }
    }
}

#[test]
fn labels_have_the_contrast_of_plain_text() {
    for palette in Palette::ALL {
        let style = Theme { palette, ascii: false }.style(Tone::Label);
        assert_eq!((style.fg, style.bg), (None, None), "the colours of the terminal");
        assert_ne!(style, Style::new(), "and still no plain text");
    }
}

#[test]
fn a_selected_row_has_the_same_contrast() {
    let exchanged = Style::new().add_modifier(Modifier::REVERSED);
    assert_eq!(selected_row(), exchanged, "text and background are exchanged, and nothing else");
}

#[test]
fn no_theme_has_a_background_and_mono_has_no_colour() {
    for palette in Palette::ALL {
        for (tone, style) in styles(palette) {
            assert_eq!(style.bg, None, "{palette} {tone:?}");
            assert!(style.fg.is_none() || palette != Palette::Mono, "{tone:?}");
        }
    }
}

#[test]
fn without_colours_what_is_wrong_still_stands_out() {
    let [plain, dim, warn, bad] =
        [Tone::Plain, Tone::Dim, Tone::Warn, Tone::Bad].map(|tone| Theme::ASCII.style(tone));
    for (a, b) in [(plain, dim), (plain, warn), (plain, bad), (dim, warn), (dim, bad), (warn, bad)]
    {
        assert_ne!(a, b);
    }
}
