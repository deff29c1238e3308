package verification

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestZN7_Markdown: what agents write comes out in Slack's form, and nothing of it
// mentions anybody or links what is not a link.
func TestZN7_Markdown(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                               "plain",
		"a & b < c > d":                       "a &amp; b &lt; c &gt; d",
		"**bold** and __bold__":               "*bold* and *bold*",
		"*italic* and _italic_":               "_italic_ and _italic_",
		"**bold *and* more":                   "**bold _and_ more",
		"2 * 3 * 4":                           "2 * 3 * 4",
		"a*b*c":                               "a*b*c",
		"~~gone~~":                            "~gone~",
		"# Title":                             "*Title*",
		"### **Title** ##":                    "*Title*",
		"#hashtag":                            "#hashtag",
		"# a * b":                             "a * b",
		"- one\n* two\n  + three":             "• one\n• two\n  • three",
		"1. one":                              "1. one",
		"[text](https://a.example/?x=1&y=2)":  "<https://a.example/?x=1&amp;y=2|text>",
		"[a|b>](https://a.example/|x)":        "<https://a.example/%7Cx|a/b&gt;>",
		"![pic](https://a.example/p.png)":     "<https://a.example/p.png|pic>",
		"[](https://a.example)":               "<https://a.example>",
		"[wiki](https://e.example/A_(b)) end": "<https://e.example/A_(b)|wiki> end",
		"[x](javascript:alert(1))":            "[x](javascript:alert(1))",
		"[x](!channel)":                       "[x](!channel)",
		"<!channel> <@U1> <https://x|y>":      "&lt;!channel&gt; &lt;@U1&gt; &lt;https://x|y&gt;",
		"`**code** <b>`":                      "`**code** &lt;b&gt;`",
		"a `b` **c** `d`":                     "a `b` *c* `d`",
		"```go\n**x** <b>\n# no\n```":         "```\n**x** &lt;b&gt;\n# no\n```",
		"~~~\nx\n~~~":                         "```\nx\n```",
		"```\nnever closed":                   "```\nnever closed\n```",
		"````\n```\n````":                     "```\n`\u200b``\n```",
		"a\r\nb":                              "a\nb",
		"# **":                                "",
	} {
		if got := mrkdwn(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestZN7_Split: messages end at paragraphs, lines or words; code, links and escaped
// signs stay whole.
func TestZN7_Split(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"empty":       {"", nil},
		"blank":       {" \n\n", nil},
		"fits":        {"0123456789012345678901234567890123456789", []string{"0123456789012345678901234567890123456789"}},
		"paragraphs":  {"first first first first\n\nsecond second second\nthird", []string{"first first first first", "second second second\nthird"}},
		"lines":       {"first first first first\nsecond second second\nthird", []string{"first first first first", "second second second\nthird"}},
		"words":       {"one two three four five six seven eight nine ten", []string{"one two three four five six seven eight", "nine ten"}},
		"no blanks":   {strings.Repeat("あ", 41), []string{strings.Repeat("あ", 40), "あ"}},
		"link":        {"see what is said about it at <https://a.example/|the page of it>", []string{"see what is said about it at", "<https://a.example/|the page of it>"}},
		"escape":      {strings.Repeat("x", 38) + "&amp;y", []string{strings.Repeat("x", 38), "&amp;y"}},
		"before code": {"some words at the beginning\n```\na\nb\nc\nd\ne\nf\n```", []string{"some words at the beginning", "```\na\nb\nc\nd\ne\nf\n```"}},
		"long code":   {"```\n" + strings.Repeat("12345678\n", 5) + "```", []string{"```\n12345678\n12345678\n12345678\n```", "```\n12345678\n12345678\n```"}},
	} {
		got := split(c.in, 40)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// FuzzZN7_Answer: whatever an agent writes becomes messages that are not empty, fit,
// are valid, mention nobody and have every block of code closed; no word is lost.
func FuzzZN7_Answer(f *testing.F) {
	for _, s := range []string{
		"**a** [b](https://c) `d`\n```\ne\n```\n", strings.Repeat("あ&<`", 50), strings.Repeat("```\nx\n", 30), "<!channel>", "\xff\x00",
		strings.Repeat("[aaaa](https://bbbb.example/cccccccccccc) ", 9), strings.Repeat("`", 200), "~~~\n```\n~~~", strings.Repeat("a\n\n", 99),
	} {
		f.Add(s)
	}
	const limit = 100
	f.Fuzz(func(t *testing.T, s string) {
		whole := mrkdwn(s)
		parts := split(whole, limit)
		words := ""
		for _, p := range parts {
			if n := utf8.RuneCountInString(p); n > limit || strings.TrimSpace(p) == "" || !utf8.ValidString(p) {
				t.Fatalf("%d characters: %q", n, p)
			}
			for rest := p; ; {
				_, after, ok := strings.Cut(rest, "<")
				if !ok {
					break
				}
				lower := strings.ToLower(after)
				if len(parts) == 1 && !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "mailto:") {
					t.Fatalf("%q may mention somebody", p)
				}
				if strings.HasPrefix(after, "!") || strings.HasPrefix(after, "@") || strings.HasPrefix(after, "#") {
					t.Fatalf("%q mentions somebody", p)
				}
				rest = after
			}
			words += p
		}
		letters := func(r rune) rune {
			if r == '`' || unicode.IsSpace(r) {
				return -1
			}
			return r
		}
		words, whole = strings.Map(letters, words), strings.Map(letters, whole)
		if words != whole {
			t.Fatalf("%q became %q", whole, words)
		}
	})
}

// FuzzZN7_Envelope: no event makes the zone fall over.
func FuzzZN7_Envelope(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"type":"event_callback","team_id":"T","authorizations":[{"user_id":"U","is_bot":true}],"event":{"type":"app_mention","text":"<@U|x> hi","ts":"1.1","channel":"C","user":"V","files":[{"id":"F","size":-1}]}}`,
		`{"event":{"tokens":{"bot":["x"]}}}`, `[1]`, `"`, `{"type":"a","type":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		z := &Zone{}
		e, ok := readEnvelope(body)
		if !ok {
			return
		}
		why, is := z.isQuestion(&e)
		if is == (why != "") {
			t.Errorf("%v, %q", is, why)
		}
		if is && (e.team == "" || e.inner.channel == "" || e.inner.ts == "" || e.inner.user == "") {
			t.Errorf("%+v", e)
		}
		_ = z.prompt(&e)
	})
}
