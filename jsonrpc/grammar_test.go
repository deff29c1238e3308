package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// grammarCases are texts for every class of the grammar, in the manner of the
// known test suites: y_ must be accepted, n_ refused. i_ are those where
// RFC 8259 leaves the choice; what was chosen is the third column.
var grammarCases = []struct {
	name, text string
	valid      bool
}{
	// Structures.
	{"y_empty_array", `[]`, true},
	{"y_empty_object", `{}`, true},
	{"y_nested", `[[],{},[[{"a":[]}]]]`, true},
	{"y_object", `{"a":1,"b":[true,null],"":""}`, true},
	{"y_duplicate_names", `{"a":1,"a":2}`, true},
	{"y_scalar_number", `42`, true},
	{"y_scalar_string", `""`, true},
	{"y_scalar_null", `null`, true},
	{"n_nothing", ``, false},
	{"n_only_space", ` `, false},
	{"n_open_array", `[`, false},
	{"n_open_object", `{`, false},
	{"n_open_inside", `[{"a":[`, false},
	{"n_close_array", `]`, false},
	{"n_close_object", `}`, false},
	{"n_close_twice", `[]]`, false},
	{"n_mismatch_array", `[}`, false},
	{"n_mismatch_object", `{]`, false},
	{"n_mismatch_deep", `[{"a":1]}`, false},
	{"n_trailing_comma_array", `[1,]`, false},
	{"n_trailing_comma_object", `{"a":1,}`, false},
	{"n_leading_comma", `[,1]`, false},
	{"n_double_comma", `[1,,2]`, false},
	{"n_double_comma_object", `{"a":1,,"b":2}`, false},
	{"n_only_comma", `[,]`, false},
	{"n_missing_comma", `[1 2]`, false},
	{"n_missing_comma_object", `{"a":1 "b":2}`, false},
	{"n_missing_comma_strings", `["a""b"]`, false},
	{"n_missing_colon", `{"a" 1}`, false},
	{"n_missing_value", `{"a":}`, false},
	{"n_missing_value_end", `{"a"`, false},
	{"n_missing_key", `{:1}`, false},
	{"n_double_colon", `{"a"::1}`, false},
	{"n_comma_for_colon", `{"a",1}`, false},
	{"n_colon_in_array", `["a":1]`, false},
	{"n_number_key", `{1:1}`, false},
	{"n_bare_key", `{a:1}`, false},
	{"n_single_quoted_key", `{'a':1}`, false},
	{"n_null_key", `{null:1}`, false},
	{"n_array_key", `{[]:1}`, false},
	{"n_two_values", `1 2`, false},
	{"n_two_objects", `{}{}`, false},
	{"n_garbage_after", `{} x`, false},
	{"n_comment_line", "// c\n{}", false},
	{"n_comment_block", `{}/**/`, false},
	{"n_comment_hash", `{} #`, false},
	{"n_semicolon", `{"a":1};`, false},
	{"n_many_open_arrays", strings.Repeat("[", 100_000), false},
	{"n_many_open_objects", strings.Repeat(`{"":`, 50_000), false},
	{"n_angle", `<null>`, false},
	{"n_asterisk", `[*]`, false},
	{"n_undefined", `[undefined]`, false},
	{"n_function", `[f()]`, false},

	// Numbers.
	{"y_zero", `0`, true},
	{"y_negative_zero", `-0`, true},
	{"y_int", `1234567890`, true},
	{"y_negative", `-1`, true},
	{"y_fraction", `0.5`, true},
	{"y_long_fraction", `123.4567890123456789012345678901234567890`, true},
	{"y_exponent", `1e5`, true},
	{"y_exponent_upper", `1E5`, true},
	{"y_exponent_plus", `1e+5`, true},
	{"y_exponent_minus", `1E-05`, true},
	{"y_all_parts", `-12.34e+56`, true},
	{"y_zero_exponent", `0e0`, true},
	{"y_beyond_int64", `123456789012345678901234567890`, true},
	{"y_beyond_float", `1e400`, true},
	{"y_after_number", `[1,2.5 ,3e1]`, true},
	{"n_minus", `-`, false},
	{"n_plus", `+1`, false},
	{"n_double_minus", `--1`, false},
	{"n_minus_space", `- 1`, false},
	{"n_leading_zero", `01`, false},
	{"n_leading_zeros", `00`, false},
	{"n_negative_leading_zero", `-01`, false},
	{"n_no_integer", `.5`, false},
	{"n_minus_point", `-.5`, false},
	{"n_no_fraction", `1.`, false},
	{"n_no_fraction_exponent", `1.e5`, false},
	{"n_two_points", `1.2.3`, false},
	{"n_no_exponent", `1e`, false},
	{"n_no_exponent_sign", `1e+`, false},
	{"n_exponent_fraction", `1e1.5`, false},
	{"n_two_exponents", `1e1e1`, false},
	{"n_zero_e", `0e`, false},
	{"n_hex", `0x1F`, false},
	{"n_octal", `0o17`, false},
	{"n_underscore", `1_000`, false},
	{"n_space_inside", `1 000`, false},
	{"n_letter_after", `1a`, false},
	{"n_infinity", `Infinity`, false},
	{"n_negative_infinity", `-Infinity`, false},
	{"n_nan", `NaN`, false},
	{"n_fullwidth_digit", "\uff11", false},
	{"n_colon_digit", `[1:]`, false},
	{"n_slash_digit", `[/]`, false},

	// Strings.
	{"y_escapes", `"\"\\\/\b\f\n\r\t"`, true},
	{"y_unicode_escape", `"\u00e9\u00E9\uabcd\uABCD"`, true},
	{"y_escaped_nul", `"\u0000"`, true},
	{"y_surrogate_pair", `"\ud83d\ude00"`, true},
	{"y_surrogate_pair_upper", `"\uD83D\uDE00"`, true},
	{"y_lowest_pair", `"\ud800\udc00"`, true},
	{"y_highest_pair", `"\udbff\udfff"`, true},
	{"y_escaped_backslash_u", `"\\u12"`, true},
	{"y_delete", "\"\x7f\"", true},
	{"y_two_bytes", `"é"`, true},
	{"y_three_bytes", `"€"`, true},
	{"y_four_bytes", `"😀"`, true},
	{"y_noncharacter", "\"\uFFFF\uFFFE\"", true},
	{"y_last_code_point", "\"\U0010FFFF\"", true},
	{"y_replacement", "\"\uFFFD\"", true},
	{"y_bom_inside", "\"\uFEFF\"", true},
	{"y_line_separator", "\"\u2028\u2029\"", true},
	{"y_long", `"` + strings.Repeat("abcdefg€", 100) + `"`, true},
	{"n_open", `"`, false},
	{"n_open_text", `"abc`, false},
	{"n_open_escape", `"\`, false},
	{"n_open_escaped_quote", `"\"`, false},
	{"n_single_quotes", `'a'`, false},
	{"n_backticks", "`a`", false},
	{"n_no_quotes", `abc`, false},
	{"n_newline", "\"a\nb\"", false},
	{"n_tab", "\"\t\"", false},
	{"n_carriage_return", "\"\r\"", false},
	{"n_nul", "\"\x00\"", false},
	{"n_unit_separator", "\"\x1f\"", false},
	{"n_escape_a", `"\a"`, false},
	{"n_escape_x", `"\x41"`, false},
	{"n_escape_quote", `"\'"`, false},
	{"n_escape_zero", `"\0"`, false},
	{"n_escape_newline", "\"\\\n\"", false},
	{"n_escape_upper_u", `"\U0041"`, false},
	{"n_escape_upper_n", `"\N"`, false},
	{"n_escape_emoji", `"\😀"`, false},
	{"n_u_none", `"\u"`, false},
	{"n_u_short", `"\u00e"`, false},
	{"n_u_letter", `"\u00eg"`, false},
	{"n_u_braces", `"\u{e9}"`, false},
	{"n_u_sign", `"\u+0e9"`, false},
	{"n_u_end", `"\u00`, false},
	{"i_lone_high", `"\ud83d"`, false},
	{"i_lone_high_end", `"\ud83dx"`, false},
	{"i_lone_low", `"\ude00"`, false},
	{"i_two_highs", `"\ud83d\ud83d"`, false},
	{"i_swapped", `"\ude00\ud83d"`, false},
	{"i_high_then_plain", `"\ud83d\u0041"`, false},
	{"i_high_then_private", `"\ud83d\ue000"`, false},
	{"i_high_then_escape", `"\ud83d\n"`, false},
	{"i_high_then_short", `"\ud83d\u00"`, false},
	{"i_high_then_text", `"\ud83dabcdefghijk"`, false},
	{"i_high_in_key", `{"\ud83d":1}`, false},

	// Bytes that are no UTF-8: RFC 8259 section 8.1 wants UTF-8.
	{"n_continuation_alone", "\"\x80\"", false},
	{"n_continuation_max", "\"\xbf\"", false},
	{"n_two_bytes_cut", "\"\xc3\"", false},
	{"n_three_bytes_cut", "\"\xe2\x82\"", false},
	{"n_four_bytes_cut", "\"\xf0\x9f\x98\"", false},
	{"n_cut_at_end", "\"\xe2\x82", false},
	{"n_overlong_two", "\"\xc0\x80\"", false},
	{"n_overlong_slash", "\"\xc1\xaf\"", false},
	{"n_overlong_three", "\"\xe0\x9f\xbf\"", false},
	{"n_overlong_four", "\"\xf0\x8f\xbf\xbf\"", false},
	{"n_surrogate_high", "\"\xed\xa0\x80\"", false},
	{"n_surrogate_low", "\"\xed\xbf\xbf\"", false},
	{"n_beyond_unicode", "\"\xf4\x90\x80\x80\"", false},
	{"n_five_bytes", "\"\xf8\x88\x80\x80\x80\"", false},
	{"n_fe", "\"\xfe\"", false},
	{"n_ff", "\"\xff\"", false},
	{"n_latin1", "\"caf\xe9 au lait\"", false},
	{"n_bad_in_key", "{\"\xff\":1}", false},
	{"n_bad_after_escape", "\"\\n\xff\"", false},
	{"n_bad_late", "\"" + strings.Repeat("a", 100) + "\xff\"", false},
	{"n_bad_early", "[\"\xff" + strings.Repeat("a", 100) + "\", 1234567890]", false},
	{"n_bad_middle", "[\"" + strings.Repeat("a", 50) + "\xff" + strings.Repeat("a", 50) + "\", 1234567890]", false},
	{"n_bad_outside", "[\xff]", false},
	{"n_bad_after", "[]\x80", false},
	{"y_edges", "\"\u0080\u07ff\u0800\ud7ff\ue000\U00010000\"", true},
	{"i_bom", "\ufeff{}", false},
	{"i_bom_only", "\ufeff", false},
	{"n_utf16_le", "[\x00]\x00", false},
	{"n_utf16_bom", "\xff\xfe[\x00]\x00", false},

	// Literals.
	{"y_true", `true`, true},
	{"y_false", `[false]`, true},
	{"n_true_upper", `True`, false},
	{"n_true_all_upper", `TRUE`, false},
	{"n_true_short", `tru`, false},
	{"n_true_in_array_short", `[tru]`, false},
	{"n_true_long", `truee`, false},
	{"n_false_typo", `fslse`, false},
	{"n_null_short", `nul`, false},
	{"n_null_upper", `Null`, false},
	{"n_nil", `nil`, false},
	{"n_two_literals", `[true false]`, false},
	{"n_literals_joined", `[truefalse]`, false},

	// Whitespace.
	{"y_all_space", " \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n", true},
	{"y_space_in_object", " { \"a\" : 1 , \"b\" : { } } ", true},
	{"y_space_in_empty", "[ ]", true},
	{"n_form_feed", "[\f]", false},
	{"n_vertical_tab", "[\v]", false},
	{"n_nul_outside", "[]\x00", false},
	{"n_no_break_space", "[\u00a0]", false},
	{"n_next_line", "[\u0085]", false},
	{"n_word_joiner", "[\u2060]", false},
	{"n_line_separator", "[\u2028]", false},
	{"n_backspace", "[\b]", false},
	{"n_space_in_literal", `[tr ue]`, false},
}

// TestGrammar holds the scan, the checker for pieces and every way of cutting
// the pieces to the grammar of RFC 8259 (RPC-4, RPC-25), and explains every
// difference from encoding/json.
func TestGrammar(t *testing.T) {
	seen := make(map[string]bool)
	for _, tc := range grammarCases {
		if seen[tc.name] {
			t.Errorf("%s: the name is there twice", tc.name)
		}
		seen[tc.name] = true
		t.Run(tc.name, func(t *testing.T) {
			text := []byte(tc.text)
			if got := checkValue(text, math.MaxInt) == nil; got != tc.valid && len(text) < maxRecursion {
				t.Errorf("checkValue: valid %v, want %v", got, tc.valid)
			}
			agree(t, text, len(text) < 2000)
			if _, err := checkMembers(text, nil); err == nil && !tc.valid {
				t.Error("checkMembers: accepted")
			}
			// As the value of a member: the envelope follows the same rules.
			if strings.TrimSpace(tc.text) == "" {
				return
			}
			var m message
			m.scan([]byte(`{"jsonrpc":"2.0","id":1,"result":`+tc.text+`}`), math.MaxInt)
			if got := m.kind == kindResult; got != tc.valid {
				t.Errorf("scan: kind %d (%s), valid %v", m.kind, m.fault, tc.valid)
			}
		})
	}
}

// agree checks that all ways of checking a text come to the same verdict.
func agree(t *testing.T, text []byte, everyCut bool) {
	t.Helper()
	whole := valueChecker{maxDepth: math.MaxInt}
	err := whole.Write(text)
	if err == nil {
		err = whole.Close()
	}
	fast := skipWhole(text, maxRecursion)
	if fast != deep && (fast >= 0) != (err == nil) {
		t.Errorf("skipWhole %d, valueChecker %v", fast, err)
	}
	if want := referenceValid(text); fast != deep && want != (err == nil) {
		t.Errorf("valueChecker %v, encoding/json with UTF-8 and surrogates: valid %v", err, want)
	}
	var syntax *SyntaxError
	if err != nil && (!errors.As(err, &syntax) || syntax.Offset > int64(len(text))) {
		t.Errorf("error %#v, want a *SyntaxError inside the text", err)
	}
	var bytewise valueChecker
	bytewise.maxDepth = math.MaxInt
	for i := range text {
		if bytewise.Write(text[i:i+1]) != nil {
			break
		}
	}
	if got := bytewise.Close(); errorText(got) != errorText(err) {
		t.Errorf("byte by byte %v, whole %v", got, err)
	}
	var m message
	if m.scan(text, math.MaxInt); m.kind == kindBatch {
		m.scanBatch(nil, text, math.MaxInt, math.MaxInt)
	}
	if (m.kind == kindMalformed) != (err != nil) {
		t.Errorf("as a message: kind %d (%s), valueChecker %v", m.kind, m.fault, err)
	}
	if !everyCut {
		return
	}
	for cut := range text {
		parts := valueChecker{maxDepth: math.MaxInt}
		parts.Write(text[:cut])
		parts.Write(text[cut:])
		if got := parts.Close(); errorText(got) != errorText(err) {
			t.Errorf("cut at %d: %v, whole %v", cut, got, err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// referenceValid is the verdict of encoding/json, which lets invalid UTF-8 and
// lone surrogates through, together with those two rules. Its own limit of
// 10,000 levels is that of skipWhole.
func referenceValid(text []byte) bool {
	return json.Valid(text) && utf8.Valid(text) && !hasLoneSurrogate(text)
}

// hasLoneSurrogate looks at the escapes of a text that encoding/json takes.
func hasLoneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		switch unit := strings.ToLower(string(text[i+1 : i+3])); {
		case unit >= "dc" && unit <= "df":
			return true
		case unit >= "d8" && unit <= "db":
			rest := bytes.ToLower(text[i+5:])
			if len(rest) < 4 || rest[0] != '\\' || rest[1] != 'u' || rest[2] != 'd' || rest[3] < 'c' || rest[3] > 'f' {
				return true
			}
			i += 7
		}
	}
	return false
}

// TestCheckerDepth counts levels in all three ways, at the limit and beyond.
func TestCheckerDepth(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		for _, depth := range []int{1, 2, 63, 64, 65, 127, 128, 129, 200} {
			text := []byte(strings.Repeat(open, depth) + "1" + strings.Repeat(map[string]string{"[": "]", `{"a":`: "}"}[open], depth))
			for _, limit := range []int{depth - 1, depth, depth + 1} {
				wantDeep := depth > limit
				if got := skipWhole(text, limit); (got == deep) != wantDeep {
					t.Errorf("%s × %d, limit %d: skipWhole %d", open, depth, limit, got)
				}
				c := valueChecker{maxDepth: limit}
				c.Write(text)
				if got := c.Close(); errors.Is(got, ErrExhausted) != wantDeep || !wantDeep && got != nil {
					t.Errorf("%s × %d, limit %d: valueChecker %v", open, depth, limit, got)
				}
				if got := checkValue(text, limit); errors.Is(got, ErrExhausted) != wantDeep || !wantDeep && got != nil {
					t.Errorf("%s × %d, limit %d: checkValue %v", open, depth, limit, got)
				}
			}
		}
	}
}

// TestCheckerOne reads one value with other text behind it, as it comes out of
// the middle of a message, however it is cut (RPC-24).
func TestCheckerOne(t *testing.T) {
	for _, value := range []string{`"a\"b"`, `[1,[2],{"a":3}]`, `{"a":[]}`, `123`, `-0.5e+7`, `0`, `true`, `null`, `""`, `[]`} {
		for _, behind := range []string{`}`, `,"id":1}`, ` ,`, `]`} {
			text := value + behind
			for cut := range len(text) {
				c := valueChecker{maxDepth: 10}
				n, err := c.step([]byte(text[:cut]), true)
				if err == nil && !c.complete() {
					var more int
					more, err = c.step([]byte(text[n:]), true)
					n += more
				}
				if err != nil || n != len(value) || !c.complete() {
					t.Errorf("%s cut at %d: took %d of %d, %v", text, cut, n, len(value), err)
				}
			}
		}
	}
}

// FuzzGrammar compares the scan, the checker for pieces and encoding/json.
func FuzzGrammar(f *testing.F) {
	for _, tc := range grammarCases {
		if len(tc.text) < 1000 {
			f.Add([]byte(tc.text), uint16(len(tc.text)/2))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint16) {
		agree(t, text, false)
		parts, whole := valueChecker{maxDepth: 100}, valueChecker{maxDepth: 100}
		n := min(int(cut), len(text))
		parts.Write(text[:n])
		parts.Write(text[n:])
		whole.Write(text)
		if a, b := errorText(parts.Close()), errorText(whole.Close()); a != b {
			t.Errorf("cut at %d: %s, whole %s", n, a, b)
		}
		// Line breaks go, the value stays.
		before := append([]byte(nil), text...)
		out, err := appendValue(nil, text, maxRecursion)
		if !bytes.Equal(before, text) {
			t.Error("appendValue changed its argument")
		}
		if err != nil {
			return
		}
		if bytes.ContainsAny(out, "\r\n") || !bytes.Equal(compact(out), compact(text)) {
			t.Errorf("appendValue made %q of %q", out, text)
		}
		spaced := valueChecker{maxDepth: math.MaxInt, spaceOut: true}
		spaced.Write(before)
		if !bytes.Equal(before, out) {
			t.Errorf("in pieces %q, whole %q", before, out)
		}
	})
}

func compact(text []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil
	}
	return b.Bytes()
}
