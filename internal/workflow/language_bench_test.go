package workflow

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// BenchmarkLanguage has what `make bench ONLY=language` measures; the bars stand
// there. A name is one case, with slashes between its parts.
func BenchmarkLanguage(b *testing.B) {
	for _, n := range []int{100, 1_000, 5_000} {
		b.Run(fmt.Sprintf("apply/sequence/%d", n), func(b *testing.B) { benchRuns(b, benchSequence(n), 1) })
	}
	b.Run("apply/parallel/1000", func(b *testing.B) { benchRuns(b, benchParallels(1, 1_000), 1_000) })
	b.Run("due/sequence/5000", benchDue)
	for name, source := range map[string][]byte{"yaml": benchYAML(200), "json": benchJSON(200)} {
		b.Run("parse/"+name, func(b *testing.B) {
			for b.Loop() {
				benchParse(b, source)
			}
		})
	}
	b.Run("parse/floor", func(b *testing.B) {
		source := benchYAML(200)
		for b.Loop() {
			var n yaml.Node
			if err := yaml.Unmarshal(source, &n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("large/memory", benchMemory)
	b.Run("large/replay", benchReplay)
	for _, bomb := range bombs() {
		b.Run("bomb/"+strings.ReplaceAll(bomb.name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bomb.run(b)
			}
		})
	}
}

func benchParse(b *testing.B, source []byte) *Definition {
	b.Helper()
	// Wide runs are made of many steps here, so that one step is one execution.
	def, problems := Parse(ParseOptions{Limits: ParseLimits{Steps: 20_000, Nodes: 1_000_000, SourceBytes: 8 << 20}}, source)
	if def == nil {
		b.Fatal(problems)
	}
	return def
}

// benchSequence is a list of n calls, each with the answer of the one before.
func benchSequence(n int) []byte {
	var s strings.Builder
	s.WriteString("name: sequence\nsteps:\n- {id: s0, agent: a, input: {text: '${workflow.input.text}'}}\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&s, "- {id: s%d, agent: a, input: {text: '${s%d.output.text}', n: %d}}\n", i, i-1, i)
	}
	return []byte(s.String())
}

// benchParallels is a list of n steps of so many calls side by side.
func benchParallels(n, width int) []byte {
	var s strings.Builder
	s.WriteString("name: parallels\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&s, "- id: p%d\n  parallel:\n", i)
		for k := range width {
			fmt.Fprintf(&s, "  - {id: s%d_%d, agent: a, input: {text: '${workflow.input.text}', n: %d}}\n", i, k, k)
		}
	}
	return []byte(s.String())
}

// benchRun plays whole runs: every call is answered, the open ones in an order
// of their own that is the same each time.
type benchRun struct {
	state *State
	now   time.Time
	open  []string
	draw  *rand.Rand
	// facts are counted, and the time in Apply if that is wanted.
	facts   int
	history []parley.Event
	keep    bool
}

func newBenchRun(def *Definition) *benchRun {
	return &benchRun{
		state: NewState("run-1", def, DefaultRunLimits()), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), draw: rand.New(rand.NewPCG(1, 2)),
	}
}

func (r *benchRun) apply(f Fact) {
	d := r.state.Apply(f)
	r.facts++
	for _, s := range d.Schedule {
		r.open = append(r.open, s.Task.ID)
	}
	if r.keep {
		r.history = append(r.history, d.Events...)
	}
}

func (r *benchRun) start() {
	r.apply(Start{At: r.now, Input: json.RawMessage(`{"text":"the history of the printing press"}`)})
}

// answer settles one open call and reports whether there was one.
func (r *benchRun) answer(output json.RawMessage) bool {
	if len(r.open) == 0 {
		return false
	}
	i, last := r.draw.IntN(len(r.open)), len(r.open)-1
	id := r.open[i]
	r.open[i], r.open = r.open[last], r.open[:last]
	r.now = r.now.Add(time.Millisecond)
	r.apply(Settled{At: r.now, TaskID: id, Started: r.now, Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: output}})
	return true
}

// benchAnswer is about what a short answer of an agent has.
func benchAnswer() json.RawMessage {
	return json.RawMessage(`{"text":"` + strings.Repeat("some text ", 40) + `","context_id":"c-1"}`)
}

// benchRuns measures whole runs, per fact and per task.
func benchRuns(b *testing.B, source []byte, width int) {
	def, answer := benchParse(b, source), benchAnswer()
	facts, runs := 0, 0
	for b.Loop() {
		r := newBenchRun(def)
		for r.start(); r.answer(answer); {
		}
		if r.state.Status() != parley.RunCompleted || len(r.state.execs) < width {
			b.Fatalf("the run is %s: %v", r.state.Status(), r.state.Err())
		}
		facts += r.facts
		runs++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(facts), "ns/fact")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(facts-runs), "ns/task")
}

// benchDue measures what the executor asks after each fact, in the middle of a
// long run.
func benchDue(b *testing.B) {
	r := newBenchRun(benchParse(b, benchSequence(5_000)))
	r.start()
	for range 2_500 {
		r.answer(benchAnswer())
	}
	for b.Loop() {
		if r.state.Due().IsZero() {
			b.Fatal("nothing is due")
		}
	}
}

// benchLarge is a run of 10,000 executions, before its last answer.
func benchLarge(b *testing.B, keep bool) *benchRun {
	r := newBenchRun(benchParse(b, benchParallels(10, 999)))
	r.keep = keep
	r.start()
	for r.facts < 9_990 {
		r.answer(benchAnswer())
	}
	if len(r.state.execs) != 10_000 || r.state.Status() != parley.RunRunning {
		b.Fatalf("%d executions, %s", len(r.state.execs), r.state.Status())
	}
	return r
}

// benchMemory measures what a run of 10,000 executions holds, its definition
// included.
func benchMemory(b *testing.B) {
	var mib float64
	for b.Loop() {
		before := benchHeap()
		r := benchLarge(b, false)
		mib = float64(benchHeap()-before) / (1 << 20)
		runtime.KeepAlive(r)
	}
	b.ReportMetric(mib, "MiB")
}

func benchHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchReplay measures the load of that run from its history.
func benchReplay(b *testing.B) {
	r := benchLarge(b, true)
	for b.Loop() {
		s := NewState("run-1", r.state.def, DefaultRunLimits())
		for _, e := range r.history {
			if err := s.Replay(e); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(r.history)), "events")
}

// benchYAML is a file of n steps such as people write: five kinds, references,
// conditions in CEL, policies, a schema in every eighth step.
func benchYAML(n int) []byte {
	var s strings.Builder
	s.WriteString(`name: Reports of all regions
description: collects, writes, checks and files
input:
  type: object
  required: [topic]
  properties: {topic: {type: string}, limit: {type: integer, default: 5}, region: {type: string}}
timeout: 6h
retry: {attempts: 3, delay: 2s}
steps:
`)
	for i := range n / 8 {
		fmt.Fprintf(&s, `- id: find_%[1]d
  agent: researcher
  input: {query: "${workflow.input.topic}", region: "Region %[1]d of ${workflow.input.region}", limit: "${workflow.input.limit + %[1]d}"}
  timeout: 10m
  parse: json
  schema: {type: object, required: [items], properties: {items: {type: array}, score: {type: number}, of_%[1]d: {type: string}}}
- id: both_%[1]d
  parallel:
  - {id: write_%[1]d, agent: writer, session: draft, input: {facts: "${find_%[1]d.output.items}", tone: friendly}}
  - {id: check_%[1]d, agents: [critic, editor], input: "${find_%[1]d.output.items}", retry: {attempts: 2, on: [agent_unavailable, stalled]}}
- id: decide_%[1]d
  if: steps.find_%[1]d.output.score >= 0.8 && size(steps.find_%[1]d.output.items) > workflow.input.limit
  then:
  - {id: file_%[1]d, agent: archive, input: {text: "${write_%[1]d.output.text}", by: "${run.id}", at: "${now}"}}
  else:
  - {id: ask_%[1]d, agent: editor, input: {text: "Please look at ${write_%[1]d.output.text}", notes: "${steps.check_%[1]d.output.?notes.orValue([]).map(n, n.text)}"}, on_error: continue}
- {id: sum_%[1]d, set: {region: %[1]d, done: "${decide_%[1]d.status == 'COMPLETED'}", text: "${write_%[1]d.output.text}"}}
`, i)
	}
	return []byte(s.String())
}

// benchJSON is the same as JSON.
func benchJSON(n int) []byte {
	var v any
	if err := yaml.Unmarshal(benchYAML(n), &v); err != nil {
		panic(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
