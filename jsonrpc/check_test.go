package jsonrpc

import (
	"strings"
	"testing"
)

// texts calls f with all texts of n words at most.
func texts(words []string, n int, f func(text string)) {
	var more func(text string, n int)
	more = func(text string, n int) {
		f(text)
		if n > 0 {
			for _, word := range words {
				more(text+word, n-1)
			}
		}
	}
	more("", n)
}

// TestGrammarOfAllShort proves of all short texts that are made of what JSON is made
// of that every way of checking takes those, and only those, that encoding/json takes
// (RPC-4, RPC-5).
func TestGrammarOfAllShort(t *testing.T) {
	check := func(text string) { agree(t, []byte(text), false) }
	texts([]string{"-", "0", "1", ".", "e", "E", "+"}, 5, check)
	texts([]string{"1", "-1.5e+3", " ", ",", "]", "x"}, 3, func(text string) { check("[" + text); check(`{"a":` + text) })
	texts([]string{"[", "]", "{", "}", ",", `"a":`, `"a"`, "1", "\n"}, 4, check)
	texts([]string{"true", "false", "null", "t", "rue", "nul", "l", "T", " ", "\t", "\r"}, 3, check)

	inString := func(text string) { check(`"` + text + `"`) }
	texts([]string{`\`, `"`, "u", "n", "/", "x", "00e9", "0", "G", "\x1f", " ", "\x7f"}, 3, inString)
	texts([]string{`\ud800`, `\udbff`, `\udc00`, `\udfff`, `\ud7ff`, `\ue000`, `\ud8`, `\`, `\n`, "u", "x"}, 3, inString)
	words := make([]string, 0, 32)
	for _, b := range []byte("\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef") {
		words = append(words, string([]byte{b}))
	}
	texts(words, 3, inString)
	for _, first := range []string{"\xf0", "\xf1", "\xf3", "\xf4", "\xf5", "\xff"} {
		texts([]string{"\x7f", "\x80", "\x8f", "\x90", "\xbf", "\xc2"}, 4, func(text string) { inString(first + text) })
	}
}

// TestCheckerEnds proves that arrays and objects are told apart at every level, however
// many there are.
func TestCheckerEnds(t *testing.T) {
	const depth = 200
	var open, end []string
	for i := range depth {
		if i%3 == 0 || i/64 == 1 {
			open, end = append(open, `{"a":`), append(end, "}")
		} else {
			open, end = append(open, "["), append(end, "]")
		}
	}
	for at := range depth {
		var text strings.Builder
		text.WriteString(strings.Join(open, "") + "1")
		for i := depth - 1; i > at; i-- {
			text.WriteString(end[i])
		}
		for wrong, fits := range map[string]bool{end[at]: true, map[string]string{"}": "]", "]": "}"}[end[at]]: false} {
			c := valueChecker{maxDepth: depth}
			if err := c.Write([]byte(text.String() + wrong)); (err == nil) != fits {
				t.Errorf("level %d ended by %s: %v", at, wrong, err)
			}
		}
	}
}
