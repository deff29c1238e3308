package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// The limits of an agents file.
const (
	maxFile     = 1 << 20 // bytes
	maxNodes    = 100_000 // with aliases expanded
	maxDepth    = 64
	maxProblems = 100
)

// reader reads YAML nodes and notes every problem at its place.
type reader struct {
	file     string
	problems parley.Problems
	errors   int // found, also those beyond maxProblems
	nodes    int // read so far
}

// problem notes an error and gives it, to be added to.
func (r *reader) problem(n *yaml.Node, path, code, text string) *parley.Problem {
	p := parley.Problem{File: r.file, Path: path, Severity: parley.SeverityError, Code: code, Text: text}
	if n != nil {
		p.Line, p.Col = n.Line, n.Column
	}
	r.errors++
	if r.errors > maxProblems+1 {
		return &p
	}
	if r.errors == maxProblems+1 {
		p.Code, p.Path, p.Text = faultLimit, "", fmt.Sprintf("there are more than %d; the others are not listed", maxProblems)
	}
	r.problems = append(r.problems, p)
	return &r.problems[len(r.problems)-1]
}

var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

// document parses data to its one document; nil with a problem, or if empty.
func (r *reader) document(data []byte) *yaml.Node {
	if len(data) > maxFile {
		r.problem(nil, "", faultLimit, fmt.Sprintf("the file is larger than %d bytes", maxFile))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if err = dec.Decode(&next); errors.Is(err, io.EOF) {
			if len(doc.Content) == 0 {
				return nil
			}
			return doc.Content[0]
		}
		if err == nil {
			r.problem(&next, "", faultSyntax, "the file holds more than one document")
			return nil
		}
	}
	text, at := err.Error(), &yaml.Node{}
	if m := lineOf.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		at.Column = 1
	}
	r.problem(at, "", faultSyntax, strings.TrimPrefix(lineOf.ReplaceAllString(text, ""), "yaml: "))
	return nil
}

// plain follows an alias and refuses what no member may be. The place of a
// problem is that of the alias.
func (r *reader) plain(n *yaml.Node, path string) (*yaml.Node, bool) {
	if r.nodes++; r.nodes > maxNodes {
		if r.nodes == maxNodes+1 {
			r.problem(n, path, faultLimit, fmt.Sprintf("the file has more than %d values, with its aliases expanded", maxNodes))
		}
		return n, false
	}
	to := n
	if n.Kind == yaml.AliasNode {
		to = n.Alias
	}
	if to.Style&yaml.TaggedStyle != 0 {
		r.problem(n, path, faultType, "tags are not allowed")
		return n, false
	}
	return to, true
}

// members gives the members of a mapping, or nil with a problem. Names that are
// not in known are problems, which name the nearest one.
func (r *reader) members(n *yaml.Node, path string, known []string) map[string]*yaml.Node {
	to, ok := r.plain(n, path)
	if !ok {
		return nil
	}
	if to.Kind != yaml.MappingNode {
		r.problem(n, path, faultType, "must be a mapping of names to values")
		return nil
	}
	found := make(map[string]*yaml.Node, len(to.Content)/2)
	for i := 0; i+1 < len(to.Content); i += 2 {
		key, ok := r.plain(to.Content[i], path)
		if !ok {
			return found
		}
		name, at := key.Value, join(path, shown(key.Value))
		_, twice := found[name]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.problem(to.Content[i], path, faultType, "the name of a member must be a string")
		case twice:
			r.problem(to.Content[i], at, faultDuplicate, shown(name)+" is given twice")
		case known != nil && !slices.Contains(known, name):
			p := r.problem(to.Content[i], at, faultUnknown, "unknown member "+shown(name))
			if near := nearest(name, known); near != "" {
				p.Suggestion = "did you mean " + near + "?"
			}
		default:
			found[name] = to.Content[i+1]
		}
	}
	return found
}

// scalar gives the text of a scalar with one of the tags, or a problem.
func (r *reader) scalar(n *yaml.Node, path, want string, tags ...string) (string, bool) {
	to, ok := r.plain(n, path)
	if !ok {
		return "", false
	}
	if to.Kind != yaml.ScalarNode || !slices.Contains(tags, to.ShortTag()) {
		r.problem(n, path, faultType, "must be "+want)
		return "", false
	}
	return to.Value, true
}

func (r *reader) text(n *yaml.Node, path string) *string {
	if s, ok := r.scalar(n, path, "a string; put it into quotes", "!!str", "!!timestamp"); ok {
		return &s
	}
	return nil
}

func (r *reader) boolean(n *yaml.Node, path string) *bool {
	if s, ok := r.scalar(n, path, "true or false", "!!bool"); ok {
		b := strings.EqualFold(s, "true")
		return &b
	}
	return nil
}

func (r *reader) integer(n *yaml.Node, path string) *int {
	s, ok := r.scalar(n, path, "a whole number", "!!int")
	if !ok {
		return nil
	}
	i, err := strconv.Atoi(s)
	if err != nil {
		r.problem(n, path, faultType, "must be a whole number in decimal digits")
		return nil
	}
	return &i
}

func (r *reader) number(n *yaml.Node, path string) *float64 {
	s, ok := r.scalar(n, path, "a number", "!!int", "!!float")
	if !ok {
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		r.problem(n, path, faultType, "must be a decimal number")
		return nil
	}
	return &f
}

// duration reads "30s" or "1m30s".
func (r *reader) duration(n *yaml.Node, path string) *time.Duration {
	if to, ok := r.plain(n, path); ok && to.Kind == yaml.ScalarNode && to.ShortTag() == "!!int" {
		r.problem(n, path, faultType, "must be a duration with its unit").Suggestion = fmt.Sprintf("write %sms, or name the member %s_ms", shown(to.Value), lastName(path))
		return nil
	}
	s, ok := r.scalar(n, path, "a duration such as 30s", "!!str")
	if !ok {
		return nil
	}
	d, ok := parseDuration(s)
	if !ok {
		r.problem(n, path, faultType, "must be a duration such as 500ms, 30s or 1m30s")
		return nil
	}
	return &d
}

// millis reads a whole number of milliseconds.
func (r *reader) millis(n *yaml.Node, path string) *time.Duration {
	i := r.integer(n, path)
	if i == nil {
		return nil
	}
	// Numbers that don't fit become ones that are out of every range.
	const most = int64(math.MaxInt64 / time.Millisecond)
	d := time.Duration(max(min(int64(*i), most), -most)) * time.Millisecond
	return &d
}

var durationForm = regexp.MustCompile(`^(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?(?:(\d{1,11})ms)?$`)

func parseDuration(s string) (time.Duration, bool) {
	m := durationForm.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, false
	}
	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond} {
		if m[i+1] != "" {
			n, _ := strconv.ParseInt(m[i+1], 10, 64) // at most 11 digits
			d += time.Duration(n) * unit
		}
	}
	return d, true
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// toJSON writes n as JSON, or notes a problem and reports false.
func (r *reader) toJSON(out *bytes.Buffer, n *yaml.Node, path string, depth int) bool {
	to, ok := r.plain(n, path)
	if !ok {
		return false
	}
	if depth > maxDepth {
		r.problem(n, path, faultLimit, fmt.Sprintf("is nested deeper than %d levels", maxDepth))
		return false
	}
	switch to.Kind {
	case yaml.MappingNode:
		return r.jsonObject(out, n, path, depth)
	case yaml.SequenceNode:
		for i, item := range to.Content {
			out.WriteByte("[,"[min(i, 1)])
			if !r.toJSON(out, item, fmt.Sprintf("%s[%d]", path, i), depth+1) {
				return false
			}
		}
		if len(to.Content) == 0 {
			out.WriteByte('[')
		}
		out.WriteByte(']')
		return true
	case yaml.ScalarNode:
		return r.jsonScalar(out, to, path)
	default:
		r.problem(n, path, faultType, "is not a value")
		return false
	}
}

func (r *reader) jsonObject(out *bytes.Buffer, n *yaml.Node, path string, depth int) bool {
	before := len(r.problems)
	members := r.members(n, path, nil)
	if len(r.problems) > before {
		return false
	}
	out.WriteByte('{')
	for i, name := range sortedKeys(members) {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(quoted(name))
		out.WriteByte(':')
		if !r.toJSON(out, members[name], join(path, shown(name)), depth+1) {
			return false
		}
	}
	out.WriteByte('}')
	return true
}

func (r *reader) jsonScalar(out *bytes.Buffer, n *yaml.Node, path string) bool {
	switch n.ShortTag() {
	case "!!null":
		out.WriteString("null")
	case "!!bool":
		out.WriteString(strings.ToLower(n.Value))
	case "!!int", "!!float":
		if !jsonNumber.MatchString(n.Value) {
			r.problem(n, path, faultType, "must be written as a decimal number, or as a string in quotes")
			return false
		}
		out.WriteString(n.Value)
	default:
		out.Write(quoted(n.Value))
	}
	return true
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // strings always can be
	return b
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nearest gives the name that was probably meant, or "".
func nearest(name string, known []string) string {
	best, least := "", len(name)/3+2
	if len(name) > 64 {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the edits (one letter put in, left out or changed) from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
