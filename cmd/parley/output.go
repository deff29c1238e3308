package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"go.yaml.in/yaml/v3"
)

func formats() []string { return []string{"table", "wide", "json", "jsonl", "yaml"} }

func isFormat(s string) bool { return slices.Contains(formats(), s) }

// human reports whether output is for people.
func (a *app) human() bool { return a.flags.output == "table" || a.flags.output == "wide" }

// show writes v in the format that was asked for; draw writes it for people.
func (a *app) show(v any, draw func(s *sheet)) error {
	if a.human() {
		draw(a.newSheet())
		return nil
	}
	return a.data(v)
}

// data writes v for programs: exactly the API's object.
func (a *app) data(v any) error {
	if a.flags.output == "yaml" {
		b, err := toJSON(v)
		if err == nil {
			b, err = toYAML(b)
		}
		if err == nil {
			_, err = a.stdout.Write(b)
		}
		return err
	}
	return writeJSON(a.stdout, v, a.flags.output == "json")
}

// writeJSON writes what [toJSON] gives, over lines if spread, and an end of line. It
// passes it on as it is made: a run may hold hundreds of megabytes.
func writeJSON(w io.Writer, v any, spread bool) error {
	o := []jsonv2.Options{jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.EscapeForJS(false)}
	if spread {
		o = append(o, jsontext.WithIndent("  "))
	}
	out := &sticky{w: &harmlessWriter{w: w}}
	if err := jsonv2.MarshalWrite(out, v, o...); out.err != nil {
		return fmt.Errorf("cannot write the output: %w", out.err)
	} else if err != nil {
		return fmt.Errorf("cannot write the answer as JSON: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// harmlessWriter makes JSON harmless on its way to w.
type harmlessWriter struct {
	w io.Writer
	// begun is the beginning of a character whose end is still to come.
	begun []byte
}

// Write writes all characters that are whole; JSON ends with one.
func (h *harmlessWriter) Write(p []byte) (int, error) {
	whole := p
	if len(h.begun) > 0 {
		whole = append(h.begun, p...)
	}
	cut := wholeRunes(whole)
	_, err := h.w.Write(harmless(whole[:cut]))
	h.begun = slices.Clone(whole[cut:])
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// wholeRunes gives the length of b without a last character that is cut.
func wholeRunes(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				break
			}
			return len(b) - n
		}
	}
	return len(b)
}

// toJSON gives v on one line, with values as they are: no escapes for HTML, but
// for what could steer a terminal.
func toJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot write the answer as JSON: %w", err)
	}
	return harmless(bytes.TrimRight(b.Bytes(), "\n")), nil
}

// harmless escapes the characters of JSON that some terminals obey though JSON
// lets them stand: DEL, C1 controls such as U+009B, and those that turn the
// direction of writing. They can only be within strings.
func harmless(b []byte) []byte {
	bad := func(r rune) bool { return r >= 0x7f && unicode.IsControl(r) || turnsText(r) }
	if !bytes.ContainsFunc(b, bad) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		if bad(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// turnsText reports whether a character turns the direction of writing.
func turnsText(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// indent spreads JSON over lines; what is no JSON stays as it is.
func indent(b []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return b
	}
	return out.Bytes()
}

// toYAML turns JSON into YAML of the same members in the same order, numbers
// as they are written, with escapes for what could steer a terminal.
func toYAML(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return harmless(out.Bytes()), nil // what the library lets stand is in double quotes
}

// yamlNode reads one value. The decoder bounds the nesting.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if v == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for d.More() {
			c, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := d.Token()
		return n, err
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		// The line breaks of YAML 1.1, and what turns the direction of writing, only double quotes escape.
		if isOldYAML(v) || strings.ContainsAny(v, "\u0085\u2028\u2029") || strings.ContainsFunc(v, turnsText) || beginsWithTab(v) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, nil
	case json.Number:
		// Without a tag, so that numbers too big for the library stay plain.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// beginsWithTab reports whether a text of several lines has a tab where readers
// look for the indentation of a block, and take it for a mistake.
func beginsWithTab(s string) bool {
	return strings.Contains(s, "\n") && strings.HasPrefix(strings.TrimLeft(s, " \n"), "\t")
}

// isOldYAML reports whether readers of YAML 1.1 would take a plain text for a
// truth value or a number in base 60.
func isOldYAML(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off":
		return true
	}
	return strings.Contains(s, ":") && strings.Trim(s, "+-0123456789:._") == ""
}

// listing is a list of T in every format.
type listing[T any] struct {
	// whole is the API's object, items what jsonl writes one line each of.
	whole   any
	items   []T
	columns []column[T]
	// none is said when there are no items.
	none string
}

// showList writes a list.
func showList[T any](a *app, l listing[T]) error {
	if a.flags.output == "jsonl" {
		for _, item := range l.items {
			if err := a.data(item); err != nil {
				return err
			}
		}
		return nil
	}
	if !a.human() {
		return a.data(l.whole)
	}
	if len(l.items) == 0 {
		a.note("%s", l.none)
		return nil
	}
	drawTable(a.newSheet(), l.columns, l.items)
	return nil
}

// pageNote tells that there is more than was shown.
func (a *app) pageNote(p pageInfo) {
	if a.human() && p.pages > p.page {
		a.note("page %d of %d (%s in all); next: --page %d", p.page, p.pages, plural(p.total, p.noun), p.page+1)
	}
}

type pageInfo struct {
	page, pages, total int
	noun               string
}
