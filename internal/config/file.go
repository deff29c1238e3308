package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// agentsSection is the section that the registry reads.
const agentsSection = "agents"

// readFile takes the values of the file.
func (l *loader) readFile() {
	if len(l.src.Data) > maxFile {
		l.problem(parley.Problem{File: l.src.File}, "", codeValue, fmt.Sprintf("the file is larger than %d bytes", maxFile))
		return
	}
	doc := l.document()
	if doc == nil {
		return
	}
	if doc.Kind != yaml.MappingNode {
		l.problem(l.at(doc), "", codeType, "the file must hold sections such as database: and bus:")
		return
	}
	l.section(doc, "")
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document parses the file to its one document, nil if there is none.
func (l *loader) document() *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(l.src.Data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if err = dec.Decode(&next); errors.Is(err, io.EOF) {
			if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
				return nil
			}
			return doc.Content[0]
		}
		if err == nil {
			l.problem(l.at(&next), "", codeSyntax, "the file holds more than one document")
			return nil
		}
	}
	text := err.Error()
	at := parley.Problem{File: l.src.File}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		at.Col = min(at.Line, 1)
		text = text[len(m[0]):]
	}
	l.problem(at, "", codeSyntax, text)
	return nil
}

func (l *loader) at(n *yaml.Node) parley.Problem {
	return parley.Problem{File: l.src.File, Line: n.Line, Col: n.Column}
}

// section reads the members of a mapping; prefix is its path with a dot behind.
func (l *loader) section(n *yaml.Node, prefix string) {
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := prefix + key.Value
		switch {
		case key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0 || key.Value == "<<":
			l.problem(l.at(key), strings.TrimSuffix(prefix, "."), codeSyntax, "the names of members are plain words")
		case seen[key.Value]:
			l.problem(l.at(key), path, codeTwice, "is given twice")
		default:
			seen[key.Value] = true
			l.member(key, value, path)
		}
	}
}

// member reads one member, a setting or a section.
func (l *loader) member(key, value *yaml.Node, path string) {
	if path == agentsSection {
		return
	}
	s, isSetting := l.known[path]
	below := l.below(path + ".")
	switch {
	case !isSetting && len(below) == 0:
		prefix := path[:strings.LastIndexByte(path, '.')+1]
		l.problem(l.at(key), path, codeUnknown, "there is no such setting"+l.meant(key.Value, l.below(prefix)))
	case value.Kind == yaml.AliasNode || value.Style&yaml.TaggedStyle != 0:
		l.problem(l.at(value), path, codeType, "must be written out, without alias and tag")
	case isSetting:
		v, err := s.node(value)
		if err != nil {
			l.problem(l.at(value), path, codeOf(err), err.Error())
			return
		}
		if v != nil {
			l.set(path, v, Origin{
				Name: l.src.File + ":" + strconv.Itoa(value.Line), line: value.Line, col: value.Column, dir: l.src.FileDir, rank: rankFile,
			})
		}
	case isNull(value):
	case value.Kind != yaml.MappingNode:
		l.problem(l.at(value), path, codeType, "must be a section with members such as "+strings.Join(below[:min(3, len(below))], ", "))
	default:
		l.section(value, path+".")
	}
}

// below are the names of the members of a section.
func (l *loader) below(prefix string) []string {
	var names []string
	for path := range l.known {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names = append(names, name)
		}
	}
	if prefix == "" {
		names = append(names, agentsSection)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// node reads the value of a setting as it stands in the file; nil is none.
func (s Setting) node(n *yaml.Node) (any, error) {
	if isNull(n) {
		return nil, nil //nolint:nilnil // a member without a value says nothing
	}
	if s.Kind == KindRules {
		return s.rules(n)
	}
	if s.Kind == KindList || s.Kind == KindFolders {
		return s.list(n)
	}
	if n.Kind != yaml.ScalarNode {
		return nil, wrongType("must be %s", s.expected())
	}
	tag := n.ShortTag()
	switch s.Kind {
	case KindNumber:
		if tag != "!!int" {
			return nil, wrongType("must be %s", s.expected())
		}
	case KindShare, KindPart:
		if tag != "!!int" && tag != "!!float" {
			return nil, wrongType("must be %s", s.expected())
		}
	case KindSwitch:
		if tag != "!!bool" && tag != "!!str" {
			return nil, wrongType("must be %s", s.expected())
		}
	case KindSize, KindDuration:
		if tag != "!!str" {
			return nil, wrongType("must be %s, with its unit", s.expected())
		}
	default:
		if tag != "!!str" {
			return nil, wrongType("must be %s; write it in quotes", s.expected())
		}
	}
	return s.parse(n.Value)
}

func (s Setting) list(n *yaml.Node) (any, error) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return s.parse(n.Value)
	}
	if n.Kind != yaml.SequenceNode {
		return nil, wrongType("must be %s", s.expected())
	}
	items := make([]string, 0, len(n.Content))
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode || c.ShortTag() != "!!str" || c.Style&yaml.TaggedStyle != 0 {
			return nil, wrongType("must be %s; line %d holds something else", s.expected(), c.Line)
		}
		items = append(items, c.Value)
	}
	return s.items(items)
}

// typeError says that a value is of another type than its setting.
type typeError struct{ text string }

func (e *typeError) Error() string { return e.text }

func wrongType(format string, args ...any) error {
	return &typeError{fmt.Sprintf(format, args...)}
}

func codeOf(err error) string {
	if _, ok := errors.AsType[*typeError](err); ok {
		return codeType
	}
	return codeValue
}
