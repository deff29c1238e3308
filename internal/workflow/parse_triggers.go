package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/cron"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// The limits and defaults of triggers (language.md §8).
const (
	maxTriggers    = 50
	leastEvery     = time.Second
	defaultCatchUp = 10 * time.Minute
	maxTopic       = 249 // of a broker
	maxHeader      = 128
	maxSecretRef   = 512
)

// triggerKinds are the members of an entry, of which there is one.
func triggerKinds() []string { return []string{"schedule", "webhook", "event", "kafka"} }

// triggers reads the list of what starts runs by itself.
func (p *parser) triggers(n *node) {
	switch {
	case n.kind != nodeList:
		problem := parley.Problem{Code: problemType, Text: fmt.Sprintf("triggers is a list, this is %s", n.kind)}
		if n.kind == nodeObject {
			problem.Suggestion = "begin each trigger with -, also if there is only one"
		}
		p.report(n, problem)
		return
	case len(n.items) > maxTriggers:
		p.errorf(n, problemLimit, "there are %d triggers, the limit `triggers` is %d", len(n.items), maxTriggers)
		return
	}
	seen := map[string]int{}
	for i, item := range n.items {
		before := len(p.problems)
		t := p.trigger(item)
		if t == nil {
			continue
		}
		p.def.Triggers = append(p.def.Triggers, t)
		if t.Schedule == nil || problemsFail(p.problems[before:]) {
			continue
		}
		same := string(t.Schedule.Text())
		if first, again := seen[same]; again {
			p.errorf(item, problemValue, "this is the schedule of triggers[%d] again: it would fire twice at each of its times", first)
			continue
		}
		seen[same] = i
	}
}

// trigger reads one entry; nil if it is none.
func (p *parser) trigger(n *node) *Trigger {
	if n.kind != nodeObject {
		p.errorf(n, problemType, "a trigger is an object with one of %s, this is %s", strings.Join(triggerKinds(), ", "), n.kind)
		return nil
	}
	t, found := &Trigger{}, 0
	member := func(read func(*Trigger, *node)) func(*node) {
		return func(m *node) {
			if found++; m.kind != nodeObject {
				p.errorf(m, problemType, "%s is an object, this is %s", m.key, m.kind)
				return
			}
			read(t, m)
		}
	}
	before := len(p.problems)
	p.object(n, !p.graph(), []parseField{
		{"schedule", member(p.schedule)},
		{"webhook", member(p.webhook)},
		{"event", member(p.eventTrigger)},
		{"kafka", member(p.kafkaTrigger)},
	})
	switch {
	case found == 1:
		return t
	case found == 0 && !problemsFail(p.problems[before:]):
		p.errorf(n, problemRequired, "a trigger needs one of %s", strings.Join(triggerKinds(), ", "))
	case found > 1:
		p.report(n, parley.Problem{
			Code: problemValue, Text: fmt.Sprintf("a trigger has one of %s, this one has %d", strings.Join(triggerKinds(), ", "), found),
			Suggestion: "make them triggers of their own",
		})
	}
	return nil
}

// triggerInput reads the member that gives the input of the run.
func (p *parser) triggerInput(t *Trigger, members []string) parseField {
	return parseField{"input", func(m *node) {
		p.template(m, parseExpr{at: expr.At{Event: true, Trigger: members}, set: func(x *expr.Template) { t.Input = x }})
	}}
}

// triggerIf reads the member that says which events start a run.
func (p *parser) triggerIf(t *Trigger, members []string) parseField {
	return parseField{"if", func(m *node) {
		p.condition(m, parseExpr{at: expr.At{Event: true, Trigger: members}, cond: func(c *expr.Condition) { t.If = c }})
	}}
}

// schedule reads {cron or every, zone, overlap, catch_up, jitter, input}.
func (p *parser) schedule(t *Trigger, n *node) {
	s := &ScheduleSpec{Zone: "UTC", Overlap: OverlapSkip, CatchUp: defaultCatchUp}
	t.Schedule = s
	input := p.triggerInput(t, []string{"scheduled_at"})
	p.object(n, !p.graph(), []parseField{
		{"cron", func(m *node) { p.cron(s, m) }},
		{"every", func(m *node) { p.every(s, m) }},
		{"zone", func(m *node) { p.zone(s, m) }},
		{"overlap", func(m *node) {
			if w, ok := p.word(m, string(OverlapSkip), string(OverlapQueue), string(OverlapCancel), string(OverlapAllow)); ok {
				s.Overlap = Overlap(w)
			}
		}},
		{"catch_up", func(m *node) { parseInto(&s.CatchUp)(p.duration(m, 0)) }},
		{"jitter", func(m *node) { parseInto(&s.Jitter)(p.duration(m, 0)) }},
		{"input", func(m *node) {
			s.Input = m.json()
			input.read(m)
		}},
	})
	cronNode, every := n.get("cron"), n.get("every")
	switch {
	case cronNode == nil && every == nil:
		p.missing(n, "cron", "a schedule needs cron, five fields, or every, a duration")
	case cronNode != nil && every != nil:
		p.errorf(every, problemValue, "cron and every exclude each other: give one of them")
	case every != nil && n.get("zone") != nil:
		p.report(n.get("zone"), parley.Problem{
			Severity: parley.SeverityWarning, Code: problemValue, Text: "zone goes with cron; every counts whole periods and knows no zone",
		})
	}
	if s.Every > 0 && s.Jitter >= s.Every {
		p.errorf(n.get("jitter"), problemValue, "jitter must be shorter than every, or firings would overtake each other")
	}
}

func (p *parser) cron(s *ScheduleSpec, n *node) {
	text, ok := p.text(n, 1, 256)
	if !ok {
		return
	}
	if _, err := cron.Parse(text); err != nil {
		p.errorf(n, problemValue, "%s", err)
		return
	}
	s.Cron = strings.Join(strings.Fields(text), " ")
}

func (p *parser) every(s *ScheduleSpec, n *node) {
	d, ok := p.duration(n, 0)
	switch {
	case !ok:
	case d < leastEvery:
		p.errorf(n, problemValue, "every is at least %s", FormatDuration(leastEvery))
	default:
		s.Every = d
	}
}

func (p *parser) zone(s *ScheduleSpec, n *node) {
	name, ok := p.text(n, 1, 64)
	if !ok {
		return
	}
	if _, err := cron.Zone(name); err != nil {
		p.report(n, parley.Problem{
			Code: problemValue, Text: err.Error(), Suggestion: "zones have IANA names, such as UTC, Europe/Berlin or America/New_York",
		})
		return
	}
	s.Zone = name
}

// webhook reads {secret, header, if, input, idempotency_key}.
func (p *parser) webhook(t *Trigger, n *node) {
	w, event := &Webhook{Header: DefaultSignatureHeader}, []string{"id", "headers", "body"}
	t.Webhook = w
	p.object(n, !p.graph(), []parseField{
		{"secret", func(m *node) { p.secretRef(w, m) }},
		{"header", func(m *node) {
			if name, ok := p.text(m, 1, maxHeader); ok && !parseChars(name, "!#$%&'*+-.^_`|~") {
				p.errorf(m, problemValue, "%q is not the name of an HTTP header", name)
			} else if ok {
				w.Header = name
			}
		}},
		p.triggerIf(t, event),
		p.triggerInput(t, event),
		{"idempotency_key", func(m *node) {
			p.template(m, parseExpr{at: expr.At{Event: true, Trigger: event}, set: func(x *expr.Template) { t.IdempotencyKey = x }})
		}},
	})
	if n.get("secret") == nil {
		p.missing(n, "secret", "a webhook needs secret, the reference of what callers sign with")
	}
}

// secretRef reads env:NAME or file:PATH. What it says of anything else does not
// repeat it: it may be the secret.
func (p *parser) secretRef(w *Webhook, n *node) {
	ref, ok := p.text(n, 1, maxSecretRef)
	if !ok {
		return
	}
	name, isEnv := strings.CutPrefix(ref, "env:")
	file, isFile := strings.CutPrefix(ref, "file:")
	switch {
	case isEnv && parseChars(name, "_") && name != "" && (name[0] < '0' || name[0] > '9'), isFile && file != "" && !n.isTemplate():
		w.Secret = ref
	case isEnv:
		p.errorf(n, problemValue, "env: is followed by the name of a variable: letters, digits and _")
	default:
		p.report(n, parley.Problem{
			Code: problemValue, Text: "a secret does not stand in a workflow: this must be a reference", Suggestion: "write env:NAME or file:PATH",
		})
	}
}

// eventMembers are those of `event` in rule C8.
func eventMembers() []string { return []string{"id", "name", "key", "data", "time"} }

// eventTrigger reads {name, if, input}.
func (p *parser) eventTrigger(t *Trigger, n *node) {
	t.Event = &EventTrigger{}
	p.object(n, !p.graph(), []parseField{
		{"name", func(m *node) { parseInto(&t.Event.Name)(p.fixed(m, 255)) }},
		p.triggerIf(t, eventMembers()),
		p.triggerInput(t, eventMembers()),
	})
	if n.get("name") == nil {
		p.missing(n, "name", "an event trigger needs the name of the event")
	}
}

// kafkaTrigger reads {topic, if, input}.
func (p *parser) kafkaTrigger(t *Trigger, n *node) {
	t.Kafka = &KafkaTrigger{}
	p.object(n, !p.graph(), []parseField{
		{"topic", func(m *node) {
			if topic, ok := p.fixed(m, maxTopic); ok && (!parseChars(topic, "._-") || topic == "." || topic == "..") {
				p.errorf(m, problemValue, "%q is not the name of a topic: letters, digits, . _ and -", topic)
			} else if ok {
				t.Kafka.Topic = topic
			}
		}},
		p.triggerIf(t, eventMembers()),
		p.triggerInput(t, eventMembers()),
	})
	if n.get("topic") == nil {
		p.missing(n, "topic", "a kafka trigger needs the name of the topic")
	}
}

// fixed reads a text that is no expression.
func (p *parser) fixed(n *node, most int) (string, bool) {
	s, ok := p.text(n, 1, most)
	if ok && n.isTemplate() {
		p.errorf(n, problemValue, "this is a fixed text: there is nothing that an expression could read when the trigger is set up")
		return "", false
	}
	return s, ok
}

// ParseSchedule reads a schedule that stands in no workflow: what the member
// schedule of a trigger holds, as JSON. The trigger is nil if any finding
// is an error.
func ParseSchedule(source []byte) (*Trigger, parley.Problems) {
	o := ParseOptions{Limits: ParseLimits{}.filled()}
	root, reader := nodeRead(bytes.TrimSpace(source), o.Limits)
	p := &parser{o: o, reader: reader, def: &Definition{Form: FormList}, steps: map[string]*parseStep{}}
	p.problems, p.dropped = reader.problems, reader.dropped
	t := &Trigger{}
	switch {
	case root == nil:
	case root.kind != nodeObject:
		p.errorf(root, problemType, "a schedule is an object, this is %s", root.kind)
	default:
		p.schedule(t, root)
		p.compile()
	}
	failed := problemsFail(p.problems)
	problems := problemsSort(p.problems, p.dropped)
	if failed || root == nil {
		return nil, problems
	}
	return t, problems
}

// scheduleText is a schedule as it is stored: every member filled in.
type scheduleText struct {
	Cron    string          `json:"cron,omitempty"`
	Every   string          `json:"every,omitempty"`
	Zone    string          `json:"zone"`
	Overlap Overlap         `json:"overlap"`
	CatchUp string          `json:"catch_up"`
	Jitter  string          `json:"jitter"`
	Input   json.RawMessage `json:"input,omitempty"`
}
