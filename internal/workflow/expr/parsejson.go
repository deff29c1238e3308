package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-project/parley"
)

// ParseJSON reads one JSON value from text (rules E9 and P1). Space around it
// and one Markdown code fence, with or without a language name, are allowed.
// The bytes of the value are given as they stand. The error is a *parley.Error
// of code expression, or limit for a value that is nested deeper than 64. How long
// text may be is for the caller to say.
func ParseJSON(text string) (json.RawMessage, error) {
	raw, f := readJSON(text)
	if f != nil {
		e := parley.Errorf(f.code, "%s", f.text)
		if f.limit != "" {
			e = e.WithDetails(map[string]any{"limit": f.limit, "value": f.max})
		}
		return nil, e
	}
	return raw, nil
}

func parseJSON(text string) (json.RawMessage, *fault) {
	if len(text) > maxValue {
		return nil, tooMuch("value_size", maxValue, "bytes")
	}
	return readJSON(text)
}

func readJSON(text string) (json.RawMessage, *fault) {
	body := strings.TrimSpace(unfence(strings.TrimSpace(text)))
	if body == "" {
		return nil, faultf("not JSON: there is no value")
	}
	raw := json.RawMessage(body)
	if f := checkJSON(raw); f != nil {
		return nil, f
	}
	return raw, nil
}

// unfence takes the fence off text that is one fenced block.
func unfence(text string) string {
	fence := text[:len(text)-len(strings.TrimLeft(text, "`"))]
	if len(fence) < 3 {
		return text
	}
	language, body, ok := strings.Cut(text[len(fence):], "\n")
	if !ok || strings.Contains(language, "`") {
		return text
	}
	inner, ok := strings.CutSuffix(body, fence)
	if !ok || strings.HasSuffix(inner, "`") || (inner != "" && !strings.HasSuffix(inner, "\n")) {
		return text
	}
	return inner
}

// checkJSON reports whether raw is exactly one JSON value without duplicate
// names, not nested too deep.
func checkJSON(raw json.RawMessage) *fault {
	if !utf8.Valid(raw) {
		return faultf("not JSON: a string is not valid UTF-8")
	}
	// Escaped halves of surrogate pairs are JSON and pass; they are what
	// AllowInvalidUTF8 is about once the bytes are known to be UTF-8.
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
	for {
		_, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return faultf("not JSON: the value ends too early")
		}
		if err != nil {
			return faultf("not JSON: %s (at byte %d)", syntaxText(err), dec.InputOffset())
		}
		if dec.StackDepth() > maxDepth {
			return tooMuch("json_depth", maxDepth, "levels")
		}
		if dec.StackDepth() == 0 {
			break
		}
	}
	if rest := raw[dec.InputOffset():]; skipSpace(rest, 0) < len(rest) {
		return faultf("not JSON: something follows the value (at byte %d)", dec.InputOffset())
	}
	return nil
}

// syntaxText says what is wrong with JSON text without showing the text.
func syntaxText(err error) string {
	switch {
	case strings.Contains(err.Error(), "duplicate object member name"):
		return "a member stands twice"
	case strings.Contains(err.Error(), "EOF"):
		return "the value ends too early"
	}
	return "unexpected text"
}
