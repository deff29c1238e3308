package agentcard

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley/internal/bridge"
)

// canonicals gives the forms of a card that its signatures may be about, without
// the signatures, as canonical JSON (RFC 8785), the strictest first. Signers
// differ in what they leave out before they sign:
//
//   - the specification: members with default values that are neither required
//     nor optional in the sense of Protocol Buffers (§8.4.1),
//   - nothing,
//   - everything that is empty (the official SDKs for Python and JavaScript),
//
// and a card that speaks 0.3 too may be signed without the members of 0.3. Agents
// of the official SDK for JavaScript lose the security schemes besides, which
// then count for nothing here (a2aproject/a2a-js#663). None of the forms says anything that the card does not say; what is read later is
// the form that was signed.
func canonicals(card []byte) ([][]byte, error) {
	var forms [][]byte
	for _, thin := range thinnings() {
		root, err := parseNode(card)
		if err != nil {
			return nil, err
		}
		root.remove("signatures")
		thin(root)
		form, err := root.canonical()
		if err != nil {
			return nil, err
		}
		forms = appendNew(forms, form)
		if escaped := ascii(form); escaped != nil {
			forms = appendNew(forms, escaped)
		}
	}
	return forms, nil
}

// thinnings are the ways of leaving something out, the strictest first.
func thinnings() []func(*node) {
	shape := cardShape()
	return []func(*node){
		func(n *node) { n.dropDefaults(shape) },
		func(*node) {},
		func(n *node) { n.dropEmpty() },
		func(n *node) { n.keepKnown(shape); n.dropDefaults(shape) },
		func(n *node) { n.keepKnown(shape) },
		func(n *node) { n.keepKnown(shape); n.dropEmpty() },
		func(n *node) { n.keepKnown(shape); n.remove("securitySchemes"); n.dropEmpty() },
	}
}

func appendNew(forms [][]byte, form []byte) [][]byte {
	if slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
		return forms
	}
	return append(forms, form)
}

// ascii writes every character beyond ASCII as an escape, as the official SDK
// for Python does; nil if there is none.
func ascii(form []byte) []byte {
	if !slices.ContainsFunc(form, func(b byte) bool { return b >= utf8.RuneSelf }) {
		return nil
	}
	var b bytes.Buffer
	for _, r := range string(form) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.Bytes()
}

// node is a JSON value that can be thinned out.
type node struct {
	kind byte // '{', '[' or 0 for a scalar
	// names are those of the members, beside their values in inner.
	names  []string
	inner  []*node
	scalar []byte
}

func parseNode(card []byte) (*node, error) {
	raw, err := bridge.CheckJSON("the card", card)
	if err != nil {
		return nil, err
	}
	return nodeOf(raw), nil
}

func nodeOf(raw []byte) *node {
	switch raw[0] {
	case '{':
		n := &node{kind: '{'}
		for name, value := range bridge.Members(raw) {
			n.names, n.inner = append(n.names, string(name)), append(n.inner, nodeOf(value))
		}
		return n
	case '[':
		n := &node{kind: '['}
		for value := range bridge.Elements(raw) {
			n.inner = append(n.inner, nodeOf(value))
		}
		return n
	}
	return &node{scalar: raw}
}

func (n *node) canonical() ([]byte, error) {
	v := jsontext.Value(n.append(nil))
	if err := v.Canonicalize(); err != nil {
		// RFC 8785 §3.1
		return nil, bridge.Defectf("not_canonical", "the card repeats a name or holds a broken character: no signature can be about it")
	}
	return v, nil
}

func (n *node) append(b []byte) []byte {
	if n.kind == 0 {
		return append(b, n.scalar...)
	}
	b = append(b, n.kind)
	for i, v := range n.inner {
		if i > 0 {
			b = append(b, ',')
		}
		if n.kind == '{' {
			b, _ = jsontext.AppendQuote(b, n.names[i]) // was read from JSON
			b = append(b, ':')
		}
		b = v.append(b)
	}
	return append(b, n.kind+2) // } and ] follow two behind { and [
}

func (n *node) remove(name string) {
	n.filter(func(member string, _ *node) bool { return member != name })
}

// filter keeps the members, or elements, for which keep is true.
func (n *node) filter(keep func(name string, v *node) bool) {
	k := 0
	for i, v := range n.inner {
		name := ""
		if n.kind == '{' {
			name = n.names[i]
		}
		if keep(name, v) {
			n.inner[k] = v
			if n.kind == '{' {
				n.names[k] = name
			}
			k++
		}
	}
	n.inner = n.inner[:k]
	if n.kind == '{' {
		n.names = n.names[:k]
	}
}

// empty says whether n is what Protocol Buffers takes for not set, or null.
func (n *node) empty() bool {
	switch n.kind {
	case 0:
		s := string(n.scalar)
		return s == `""` || s == "null"
	default:
		return len(n.inner) == 0
	}
}

// dropEmpty takes out everything empty, innermost first.
func (n *node) dropEmpty() {
	n.filter(func(_ string, v *node) bool {
		v.dropEmpty()
		return !v.empty()
	})
}
