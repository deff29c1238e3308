package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// ParseOptions says how a document is read. The zero value is useful.
type ParseOptions struct {
	// File names the document in problems.
	File string
	// Version is used when the document names none. With "" the definition has
	// none either, and whoever deploys it gives the next whole number.
	Version string
	// KnownAgents says whether an agent of that name is there; nil checks no
	// names.
	KnownAgents func(name string) bool
	// Idempotent says whether an agent is not known to be one that must not be
	// hedged (rule R5); nil checks none.
	Idempotent func(name string) bool
	// Limits are those of language.md §10; a zero member is its default.
	Limits ParseLimits

	// accepted: the document was accepted before, perhaps by an earlier program that found
	// less in it.
	accepted bool
}

// ParseLimits bound one document.
type ParseLimits struct {
	// SourceBytes bounds the source (1 MiB), Nodes its values with aliases
	// expanded (100,000), Depth the nesting of one value such as `input` (64),
	// Scopes the nesting of lists of steps (32), Steps all steps (2,000), Branches
	// the children, cases or branches of one step (1,000).
	SourceBytes, Nodes, Depth, Scopes, Steps, Branches int
}

// storedLimits are the largest that settings take: what was deployed once is read,
// however the limits have changed since.
func storedLimits() ParseLimits {
	return ParseLimits{SourceBytes: 16 << 20, Nodes: 10_000_000, Scopes: 256, Steps: 100_000, Branches: 100_000}
}

// filled gives the limits with the defaults of language.md §10.
func (l ParseLimits) filled() ParseLimits {
	or := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	return ParseLimits{
		SourceBytes: or(l.SourceBytes, 1<<20), Nodes: or(l.Nodes, 100_000), Depth: or(l.Depth, 64),
		Scopes: or(l.Scopes, 32), Steps: or(l.Steps, 2000), Branches: or(l.Branches, 1000),
	}
}

// Parse compiles one document, YAML or JSON by its first character, and gives
// every finding at once, sorted by position, at most 100 and one that counts
// the rest. The definition is nil if any finding is an error; its Warnings are
// the findings that are not. The result does not share memory with source.
func Parse(o ParseOptions, source []byte) (*Definition, parley.Problems) {
	return parse(o, source, nil)
}

// ParseStored is [Parse] for a version that was deployed: no setting keeps it from
// being read. That a value can never be what is wanted is a warning there, and a plan
// that stands in it is not looked at: earlier versions of Parley did neither.
func ParseStored(name, version string, source []byte) (*Definition, parley.Problems) {
	return Parse(ParseOptions{File: name, Version: version, Limits: storedLimits(), accepted: true}, source)
}

// parse compiles a document, or for a plan one that holds no more than it may.
func parse(o ParseOptions, source []byte, plan *Plan) (*Definition, parley.Problems) {
	o.Limits = o.Limits.filled()
	root, reader := nodeRead(source, o.Limits)
	p := newParser(o, reader)
	p.plan = plan
	p.problems, p.dropped = reader.problems, reader.dropped
	if root != nil {
		p.document(root)
	}
	for i := range p.problems {
		p.problems[i].File = o.File
	}
	failed := problemsFail(p.problems)
	problems := problemsSort(p.problems, p.dropped)
	if failed {
		return nil, problems
	}
	p.def.Warnings = problems
	return p.def, problems
}

func newParser(o ParseOptions, reader *nodeReader) *parser {
	return &parser{
		o: o, reader: reader, def: &Definition{}, steps: map[string]*parseStep{}, beside: map[*Block]bool{}, woven: map[*Block]bool{},
		kinds: parseKinds(), members: membersByName(),
	}
}

// parser holds one document while it is compiled.
type parser struct {
	o ParseOptions
	// plan says what the document may hold; nil is anything.
	plan     *Plan
	reader   *nodeReader
	def      *Definition
	problems []parley.Problem
	// dropped counts the findings beyond problemsKept.
	dropped int

	// kinds and members are what a step may be and have.
	kinds   []parseKind
	members map[string]parseMember
	// defaults are the members of the workflow that agent steps inherit.
	defaults parseDefaults
	// steps holds every step by id, order in the order of the source.
	steps map[string]*parseStep
	order []*parseStep
	// all counts the steps of the document; crowded is set once that passed
	// the limit.
	all     int
	crowded bool
	// refused is set when something is not in this version: what hangs on it
	// cannot be judged.
	refused bool
	// beside are the blocks whose steps start together unless they say what they
	// need, woven those in which one says it.
	beside, woven map[*Block]bool
	// jumps are the targets of handlers.
	jumps []parseJump
	// flow is that of the graph form, nil in the other.
	flow *graphFlow
	// later are the expressions; they are compiled when all steps are known.
	later []parseExpr

	inputSchema json.RawMessage
	// compilers by form: the lists inside a graph follow list-form rules.
	compilers map[Form]*expr.Compiler
}

// parseStep is a step while it is compiled.
type parseStep struct {
	*Step
	node *node
	// list is set when the step follows list-form rules.
	list bool
	// schema is the declared schema of the step's output, nil if none.
	schema json.RawMessage
	// needs is the list of the siblings that it needs, nil if it has none.
	needs *node
	// seen holds the members that were read, by name.
	seen map[string]*node
}

// document compiles the whole tree.
func (p *parser) document(root *node) {
	if root.kind != nodeObject {
		p.errorf(root, problemType, "a workflow is an object with name and steps, this is %s", root.kind)
		return
	}
	steps := root.get("steps")
	p.def.Form = formOf(steps != nil, steps != nil && steps.kind == nodeObject, root.get("start_step") != nil)
	p.def.Language, p.def.CleanupTimeout, p.def.Timeout = 1, defaultCleanup, defaultTimeout
	p.defaults.silence = defaultSilence
	p.top(root)
	p.def.Steps = make(map[string]*Step, len(p.order))
	p.def.Body = &Block{}
	if steps := root.get("steps"); steps != nil {
		p.body(steps, root)
	}
	if n := root.get("finally"); n != nil && n.kind != nodeNull {
		p.def.Finally = &Block{Role: roleFinally}
		p.list(n, p.def.Finally, 1)
	}
	p.targets()
	p.inherit()
	p.lateEscalations()
	p.compile()
	for _, s := range p.order {
		p.literalPlan(s)
		if checkReached(s.Step) {
			p.def.Steps[s.ID] = s.Step
			p.hedges(s.Step)
			p.runs(s.Step)
			if s.Index == 0 {
				s.Block.link()
			}
		}
	}
}

func (p *parser) hedges(s *Step) {
	for _, agent := range s.Agents {
		if s.Hedged {
			p.def.Hedged = append(p.def.Hedged, HedgedAgent{Step: s.ID, Agent: agent})
		}
	}
}

// body reads the steps of the document in its form.
func (p *parser) body(steps, root *node) {
	if p.graph() {
		p.graphSteps(steps, root.get("start_step"))
		return
	}
	p.list(steps, p.def.Body, 1)
}

func (p *parser) graph() bool { return p.def.Form == FormGraph }

// names fills in workflow_id and version (language.md §1; §9 for graph form).
func (p *parser) names() {
	if p.def.ID == "" {
		p.def.ID = parseSlug(p.def.Name)
	}
	if p.def.Version == "" {
		p.def.Version = p.o.Version
	}
}

// parseSlug makes a workflow_id of a name: lower-cased, runs of other
// characters turned to "-". A name that leaves nothing gives an id of its hash.
func parseSlug(name string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_':
			b.WriteRune(c)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	slug := strings.TrimLeft(b.String(), "-._")
	if len(slug) > 128 {
		slug = slug[:128]
	}
	if slug = strings.TrimRight(slug, "-"); slug == "" {
		sum := sha256.Sum256([]byte(name))
		return "workflow-" + hex.EncodeToString(sum[:6])
	}
	return slug
}

// errorf records an error at a node.
func (p *parser) errorf(n *node, code, format string, args ...any) {
	p.report(n, parley.Problem{Severity: parley.SeverityError, Code: code, Text: fmt.Sprintf(format, args...)})
}

// report records a finding at a node. A path that is set already stays.
func (p *parser) report(n *node, problem parley.Problem) {
	if problem.Severity == "" {
		problem.Severity = parley.SeverityError
	}
	full := len(p.problems) >= problemsKept
	if full {
		p.dropped++
	}
	// An error stands for the refusal of the document: the first is always kept, in the
	// place of a warning.
	if full && (problem.Severity != parley.SeverityError || problemsFail(p.problems)) {
		return
	}
	problem.Line, problem.Col = n.line, n.col
	if problem.Path == "" {
		problem.Path = n.path()
	}
	problem.Path = nodePath(problem.Path)
	if full {
		p.problems[problemsKept-1] = problem
		return
	}
	p.problems = append(p.problems, problem)
}

// suggest is didYouMean as long as there are few findings: looking for a like
// name is worth its time to a person only.
func (p *parser) suggest(name string, names []string) string {
	if len(p.problems) > problemsMax {
		return ""
	}
	return didYouMean(name, names)
}

// reportName records a finding at the name of a member.
func (p *parser) reportName(of *node, m nodeMember, problem parley.Problem) {
	problem.Path = m.value.path()
	p.report(&node{line: m.line, col: m.col, parent: of, key: m.name}, problem)
}

// missing records that a member is required.
func (p *parser) missing(of *node, name, text string) {
	p.report(of, parley.Problem{Path: nodeJoin(of.path(), name), Code: problemRequired, Text: text})
}
