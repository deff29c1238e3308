package registry

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// Shown is the section agents of a file as it may be shown.
type Shown struct {
	// JSON is the list with its members as they stand in the file, in that order
	// and with aliases written out; nil without agents. References are as they are,
	// any other credential is [Sealed].
	JSON json.RawMessage
	// Line is where the section stands.
	Line int
	// Masked: a credential stands in the file itself, so that what is shown cannot
	// be taken instead: LoadSection refuses it.
	Masked bool
}

// ShowSection gives the agents that [LoadSection] reads in data, without anything
// if that finds fault with them.
func ShowSection(data []byte) Shown {
	_, problems := LoadSection("", data)
	if slices.ContainsFunc(problems, func(p parley.Problem) bool { return p.Severity == parley.SeverityError }) {
		return Shown{}
	}
	doc := (&reader{}).document(data)
	if doc == nil {
		return Shown{}
	}
	for i := 0; i+1 < len(doc.Content); i += 2 {
		key, list := doc.Content[i], aliased(doc.Content[i+1])
		if key.Value != "agents" || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
			continue
		}
		var s shower
		s.list(list, s.agent)
		return Shown{JSON: s.out.Bytes(), Line: key.Line, Masked: s.masked}
	}
	return Shown{}
}

// shower writes nodes of a file that is right: so they are bounded, and no alias
// leads back.
type shower struct {
	out    bytes.Buffer
	masked bool
}

func aliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (s *shower) list(n *yaml.Node, item func(*yaml.Node)) {
	s.out.WriteByte('[')
	for i, c := range n.Content {
		if i > 0 {
			s.out.WriteByte(',')
		}
		item(aliased(c))
	}
	s.out.WriteByte(']')
}

// object writes a mapping; member gives what writes the value of a name.
func (s *shower) object(n *yaml.Node, member func(name string) func(*yaml.Node)) {
	s.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		if i > 0 {
			s.out.WriteByte(',')
		}
		name := aliased(n.Content[i]).Value
		s.out.Write(quoted(name))
		s.out.WriteByte(':')
		member(name)(aliased(n.Content[i+1]))
	}
	s.out.WriteByte('}')
}

func (s *shower) agent(n *yaml.Node) {
	s.object(n, func(name string) func(*yaml.Node) {
		switch name {
		case "auth", "auth_config":
			return s.auth
		case "tls":
			return s.hidden
		}
		return s.plain
	})
}

// openAuth are the members of an authentication that are no credentials. Others
// are taken for some: an old auth_config may have any.
func openAuth() []string {
	return []string{
		"type", "header", "header_name", "name", "in", "user", "token_url", "client_id", "scopes", "audience", "auth_style",
	}
}

func (s *shower) auth(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		s.hidden(n)
		return
	}
	s.object(n, func(name string) func(*yaml.Node) {
		if !slices.Contains(openAuth(), name) {
			return s.hidden
		}
		return s.plain
	})
}

// hidden writes what is or holds a credential.
func (s *shower) hidden(n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		s.object(n, func(string) func(*yaml.Node) { return s.hidden })
	case yaml.SequenceNode:
		s.list(n, s.hidden)
	default:
		kind, _ := splitRef(n.Value)
		if n.ShortTag() != "!!null" && n.Value != "" && kind != refEnv && kind != refFile {
			s.masked = true
			s.out.Write(quoted(Sealed))
			return
		}
		s.plain(n)
	}
}

func (s *shower) plain(n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		s.object(n, func(string) func(*yaml.Node) { return s.plain })
	case yaml.SequenceNode:
		s.list(n, s.plain)
	default:
		s.scalar(n)
	}
}

// scalar writes a value that has been read, so that it is one of JSON, but for
// numbers such as +1.5.
func (s *shower) scalar(n *yaml.Node) {
	switch n.ShortTag() {
	case "!!null":
		s.out.WriteString("null")
	case "!!bool":
		s.out.WriteString(strings.ToLower(n.Value))
	case "!!int", "!!float":
		f, err := strconv.ParseFloat(n.Value, 64)
		switch {
		case jsonNumber.MatchString(n.Value):
			s.out.WriteString(n.Value)
		case err == nil:
			s.out.WriteString(strconv.FormatFloat(f, 'g', -1, 64))
		default:
			s.out.Write(quoted(n.Value))
		}
	default:
		s.out.Write(quoted(n.Value))
	}
}
