package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/v2"

	"github.com/parley-project/parley"
)

// Sources are where a configuration comes from.
type Sources struct {
	// File is the path of the file as it was given, "" for none, and Data its
	// content.
	File string
	Data []byte
	// Env holds NAME=value entries; of two with one name the last counts.
	Env []string
	// Flags are the values of flags by the paths of their settings; the values of
	// a list have commas between them.
	Flags map[string]string
	// Dir is what relative paths of variables and flags begin at. Those of the
	// file begin at FileDir.
	Dir, FileDir string
	// ReadFile reads what a reference file:PATH names.
	ReadFile func(path string) ([]byte, error)
	// Suggest says what may have been meant by an unknown name, as a question
	// such as "did you mean listen?", or "". Nil is nothing.
	Suggest func(name string, known []string) string
}

// Origin is where the value of a setting comes from.
type Origin struct {
	// Name is the file with its line, the variable or the flag; "default"
	// without any.
	Name string
	// line and col are where the value stands in the file, 0 elsewhere.
	line, col int
	// dir is what a relative path begins at.
	dir string
	// rank orders origins: the higher one wins.
	rank int
}

// The ranks of origins. The names of the existing platform fill in what nobody
// else says: a leftover variable must not beat what was written for Parley.
const (
	rankDefault = iota
	rankOld
	rankFile
	rankEnv
	rankFlag
)

// Loaded is a configuration with where it comes from.
type Loaded struct {
	Config
	// values are the effective values, still as references, by path.
	values map[string]any
	origin map[string]Origin
}

// Load reads a configuration. The error is [parley.Problems] with everything
// that is wrong with the sources, at most 100 problems.
func Load(src Sources) (*Loaded, error) {
	l := &loader{
		src: src, known: make(map[string]Setting), values: make(map[string]any), origin: make(map[string]Origin),
		env: environment(src.Env),
	}
	for _, s := range Settings() {
		l.known[s.Path] = s
		l.values[s.Path], l.origin[s.Path] = s.Default, Origin{Name: "default", dir: src.Dir}
	}
	l.readFile()
	l.readEnv()
	l.readFlags()
	l.judgeStrangers()
	l.derive()
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	out := &Loaded{values: l.values, origin: l.origin}
	if err := l.decode(&out.Config); err != nil {
		return nil, err
	}
	out.Retention.read()
	l.resolve(&out.Config)
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	out.File, out.Source, out.Notes = src.File, src.Data, l.notes
	return out, nil
}

// loader is one reading.
type loader struct {
	src      Sources
	env      map[string]string
	known    map[string]Setting
	values   map[string]any
	origin   map[string]Origin
	problems parley.Problems
	notes    []string
	// strangers are variables with our prefix that are no settings.
	strangers []string
}

const maxProblems = 100

// problem notes what is wrong with path; at says where.
func (l *loader) problem(at parley.Problem, path, code, text string) {
	if len(l.problems) >= maxProblems {
		return
	}
	at.Path, at.Code, at.Severity = path, code, parley.SeverityError
	at.Text = text
	if path != "" {
		at.Text = path + ": " + text
	}
	l.problems = append(l.problems, at)
}

// whence is where the value of a setting comes from.
func (l *loader) whence(path string) parley.Problem {
	o := l.origin[path]
	if o.line > 0 {
		return parley.Problem{File: l.src.File, Line: o.line, Col: o.col}
	}
	return parley.Problem{File: o.Name}
}

// The codes of problems.
const (
	codeSyntax  = "syntax"
	codeUnknown = "unknown"
	codeTwice   = "duplicate"
	codeType    = "type"
	codeValue   = "value"
	codeSecret  = "secret"
)

// set gives a setting its value, unless a stronger source has.
func (l *loader) set(path string, v any, o Origin) {
	if o.rank >= l.origin[path].rank {
		l.values[path], l.origin[path] = v, o
	}
}

// readFlags takes the values of flags.
func (l *loader) readFlags() {
	for _, path := range slices.Sorted(maps.Keys(l.src.Flags)) {
		s, ok := l.known[path]
		at := parley.Problem{File: "--" + path}
		if !ok {
			l.problem(at, path, codeUnknown, "there is no such setting"+l.meant(path, l.paths()))
			continue
		}
		if v, err := s.parse(l.src.Flags[path]); err != nil {
			l.problem(at, path, codeValue, err.Error())
		} else {
			l.set(path, v, Origin{Name: "--" + path, dir: l.src.Dir, rank: rankFlag})
		}
	}
}

// derive settles what hangs on other settings.
func (l *loader) derive() {
	if l.values["bus.kind"] == "" {
		kind := BusMemory
		if len(l.values["bus.kafka.brokers"].([]string)) > 0 {
			kind = BusKafka
		}
		l.values["bus.kind"] = kind
	}
	for _, part := range []string{"ca", "cert", "key", "server_name"} {
		if l.values["bus.kafka.tls."+part] != "" && l.origin["bus.kafka.tls.enabled"].rank == rankDefault {
			l.values["bus.kafka.tls.enabled"] = true
		}
	}
	if l.values["data"] == "" {
		l.problem(l.whence("data"), "data", codeValue, "must name a folder: the keys are kept there")
	}
	l.checkValues()
	for path, s := range l.known {
		switch s.Kind {
		case KindFolder, KindFile:
			l.values[path] = absolute(l.origin[path].dir, l.values[path].(string))
		case KindFolders:
			list := slices.Clone(l.values[path].([]string))
			for i := range list {
				list[i] = absolute(l.origin[path].dir, list[i])
			}
			l.values[path] = list
		}
	}
}

// decode fills the structure by its tags.
func (l *loader) decode(c *Config) error {
	k := koanf.New(".")
	tree := tree{}
	for path, v := range l.values {
		if s := l.known[path]; s.Kind != KindSecret && s.Kind != KindURL {
			tree.put(strings.Split(path, "."), v)
		}
	}
	if err := k.Load(tree, nil); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := k.Unmarshal("", c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// tree is a [koanf.Provider] of values that were read already.
type tree map[string]any

func (t tree) put(path []string, v any) {
	if len(path) == 1 {
		t[path[0]] = v
		return
	}
	below, ok := t[path[0]].(map[string]any)
	if !ok {
		below = map[string]any{}
		t[path[0]] = below
	}
	tree(below).put(path[1:], v)
}

// Read implements [koanf.Provider].
func (t tree) Read() (map[string]any, error) { return t, nil }

// ReadBytes implements [koanf.Provider].
func (t tree) ReadBytes() ([]byte, error) {
	return nil, errors.New("a tree of values has no text")
}

// paths are the names of all settings.
func (l *loader) paths() []string { return slices.Sorted(maps.Keys(l.known)) }

// meant gives the question what may have been meant, with a blank before it.
func (l *loader) meant(name string, known []string) string {
	if l.src.Suggest == nil {
		return ""
	}
	if s := l.src.Suggest(name, known); s != "" {
		return " (" + s + ")"
	}
	return ""
}
