package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
	"github.com/parley-project/parley/internal/workflow"
)

// worldWorkflows shows a world as the keeper of workflows.
type worldWorkflows struct{ w *world }

func (v worldWorkflows) Apply(_ context.Context, req parley.ApplyRequest) (parley.WorkflowVersion, bool, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return v.w.apply(req)
}

func (v worldWorkflows) Validate(_ context.Context, req parley.ApplyRequest) parley.Problems {
	_, problems := workflow.Parse(workflow.ParseOptions{File: req.File}, req.Source)
	return problems
}

func (v worldWorkflows) Get(_ context.Context, ref string) (parley.WorkflowVersion, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if found := v.w.find(ref, ""); found != nil {
		return *found, nil
	}
	return parley.WorkflowVersion{}, missing("workflow", ref)
}

func (v worldWorkflows) List(_ context.Context, q parley.WorkflowQuery) ([]parley.WorkflowVersion, int, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	var list []parley.WorkflowVersion
	seen := map[string]bool{}
	for _, x := range slices.Backward(v.w.workflows) {
		if !seen[x.Workflow] && (q.Status == "" || x.Status == q.Status) {
			list = append(list, *x)
		}
		seen[x.Workflow] = true
	}
	return window(list, q.Page), len(list), nil
}

func (v worldWorkflows) Versions(_ context.Context, ref string, p parley.Page) ([]parley.WorkflowVersion, int, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	var list []parley.WorkflowVersion
	for _, x := range slices.Backward(v.w.workflows) {
		if x.Workflow == ref {
			list = append(list, *x)
		}
	}
	if len(list) == 0 {
		return nil, 0, missing("workflow", ref)
	}
	return window(list, p), len(list), nil
}

func (v worldWorkflows) Remove(_ context.Context, ref, _ string) error {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	found := v.w.find(ref, "")
	if found == nil {
		return missing("workflow", ref)
	}
	found.Status = parley.AgentDeleted
	return nil
}

// worldAgents shows a world as the register of agents.
type worldAgents struct{ w *world }

func (v worldAgents) at(ref string) *parley.Agent {
	for _, g := range v.w.agents {
		if g.Name == ref || g.ID == ref {
			return g
		}
	}
	return nil
}

func (v worldAgents) Add(_ context.Context, spec parley.AgentSpec) (parley.Agent, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if v.at(*spec.Name) != nil {
		return parley.Agent{}, parley.Errorf(parley.CodeConflict, "Agent with name '%s' already exists", *spec.Name)
	}
	g := &parley.Agent{
		ID: fmt.Sprintf("00000000-0000-4000-9000-%012d", len(v.w.agents)+1), Name: *spec.Name,
		Protocol: parley.ProtocolSimpleA2A, Auth: parley.Auth{Type: parley.AuthNone}, Timeout: 30e9,
		Retry: parley.DefaultRetryConfig(), Status: parley.AgentActive, CreatedAt: epoch(), UpdatedAt: epoch(),
	}
	v.w.agents = append(v.w.agents, g)
	return *g, v.change(g, spec)
}

func (v worldAgents) change(g *parley.Agent, s parley.AgentSpec) error {
	if s.Protocol != nil && *s.Protocol == parley.ProtocolAuto {
		found, err := v.look(context.Background(), parley.Agent{URL: *s.URL, ProtocolConfig: s.ProtocolConfig})
		if err != nil {
			return err
		}
		s.Protocol = &found.Protocol
		g.Detected, _ = json.Marshal(found)
	}
	if s.Protocol != nil {
		if *s.Protocol != parley.ProtocolSimpleA2A && *s.Protocol != parley.ProtocolJSONRPC {
			return parley.Errorf(parley.CodeUnsupportedProtocol, "protocol %q is not supported; the protocols are simple-a2a, jsonrpc-2.0", *s.Protocol)
		}
		g.Protocol = *s.Protocol
	}
	set(&g.URL, s.URL)
	set(&g.Description, s.Description)
	set(&g.Timeout, s.Timeout)
	set(&g.OutcomeUnknown, s.OutcomeUnknown)
	set(&g.Status, s.Status)
	set(&g.Idempotent, s.Idempotent)
	set(&g.MaxConcurrent, s.MaxConcurrent)
	set(&g.Limits, s.Limits)
	set(&g.Priority, s.Priority)
	if b := s.Breaker; b != nil {
		g.Breaker = nil
		if *b != (parley.Breaker{}) {
			g.Breaker = b
		}
	}
	if h := s.Health; h != nil {
		g.Health = nil
		if *h != (parley.HealthCheck{}) {
			g.Health = h
		}
	}
	if s.ProtocolConfig != nil {
		g.ProtocolConfig = s.ProtocolConfig
	}
	if a := s.Auth; a != nil {
		g.Auth = parley.Auth{Type: a.Type, Header: a.Header, Secret: a.Secret, In: a.In, User: a.User, OAuth2: a.OAuth2}
		if !a.Literal.IsZero() {
			g.Auth.Secret = fmt.Sprintf("sealed:%d bytes", len(a.Literal.Reveal()))
		}
		for name, s := range a.Headers {
			g.Auth.Headers = map[string]string{name: s.Secret}
		}
	}
	if t := s.TLS; t != nil {
		g.TLS = parley.AgentTLS{Cert: t.Cert.Secret, Key: t.Key.Secret, CA: t.CA.Secret}
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (v worldAgents) Update(_ context.Context, ref string, spec parley.AgentSpec) (parley.Agent, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	g := v.at(ref)
	if g == nil {
		return parley.Agent{}, missing("agent", ref)
	}
	err := v.change(g, spec)
	return *g, err
}

func (v worldAgents) Get(_ context.Context, ref string) (parley.Agent, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if g := v.at(ref); g != nil {
		return *g, nil
	}
	return parley.Agent{}, missing("agent", ref)
}

func (v worldAgents) List(_ context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	var list []parley.Agent
	for _, g := range v.w.agents {
		if (q.Status == "" || g.Status == q.Status) && (q.Protocol == "" || g.Protocol == q.Protocol) && strings.Contains(g.Name, q.Name) {
			list = append(list, *g)
		}
	}
	return window(list, q.Page), len(list), nil
}

func (v worldAgents) Remove(_ context.Context, ref, _ string) (parley.Agent, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	g := v.at(ref)
	if g == nil {
		return parley.Agent{}, missing("agent", ref)
	}
	g.Status = parley.AgentDeleted
	return *g, nil
}

func (v worldAgents) Health(context.Context, string) (parley.AgentHealth, error) {
	return parley.AgentHealth{At: epoch().Add(time.Minute)}, nil
}

// ask lets the agent of a step wait for a person.
func (r *worldRun) ask(id, question string) {
	begin := r.say(parley.EventStepScheduled, id, 1, `{"kind":"agent","agent":"greeter"}`)
	r.say(parley.EventStepAccepted, id, 1, `{"agent_task_id":"task-1"}`)
	r.say(parley.EventStepProgress, id, 1, `{"text":"thinking"}`)
	r.say(parley.EventStepWaiting, id, 1, `{"question":`+question+`,"news":1}`)
	q := new(parley.Question)
	if err := json.Unmarshal([]byte(question), q); err != nil {
		panic(err)
	}
	r.run.Steps = []parley.Step{{
		ID: id, Kind: "agent", Status: parley.StepRunning, Phase: parley.PhaseInputRequired, Agent: "greeter", Attempts: 1,
		AgentTaskID: "task-1", Question: q, ScheduledAt: &begin, StartedAt: &begin,
	}}
}

// AnswerStep answers the one step that waits; then its run is done.
// Attempts gives one answered attempt for each agent step that has ended, and
// for each other one that was refused and one that waits.
func (w *world) Attempts(_ context.Context, q parley.AttemptQuery) ([]parley.Attempt, int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.at(q.Run)
	if r == nil {
		return nil, 0, parley.Errorf(parley.CodeNotFound, "there is no run %q", q.Run)
	}
	all := []parley.Attempt{}
	for _, s := range r.run.Steps {
		if s.StartedAt == nil || q.Step != "" && q.Step != s.ID {
			continue
		}
		end, took := s.StartedAt.Add(24*time.Millisecond), int64(24)
		x := parley.Attempt{
			TaskID: r.run.ID + "." + s.ID + ".1", Step: s.ID, Number: 1, Agent: s.Agent, State: "closed", Outcome: parley.OutcomeOK, Status: 200,
			Request: json.RawMessage(`{"name":"Ada"}`), RequestBytes: 14, Response: s.Output, ResponseBytes: int64(len(s.Output)), Sendings: 1,
			ScheduledAt: *s.StartedAt, StartedAt: s.StartedAt, EndedAt: &end, TookMS: &took,
		}
		if s.Status == parley.StepCompleted {
			all = append(all, x)
			continue
		}
		x.Outcome, x.Status, x.Error, x.Response, x.ResponseBytes = parley.OutcomeError, 503, parley.Errorf(parley.CodeAgentUnavailable, "busy"), nil, 0
		next := end.Add(2 * time.Second)
		x.Late = []parley.LateAnswer{
			{At: end.Add(1500 * time.Millisecond), Outcome: parley.OutcomeOK, Response: json.RawMessage(`{"text":"late"}`), ResponseBytes: 15},
			{At: end.Add(time.Minute), Outcome: parley.OutcomeError, Error: parley.Errorf(parley.CodeAgentError, "no")},
		}
		all = append(all, x, parley.Attempt{
			TaskID: r.run.ID + "." + s.ID + ".2", Step: s.ID, Number: 2, Agent: s.Agent, State: "open",
			Request: x.Request, RequestBytes: 14, ScheduledAt: end, NotBefore: &next,
		})
	}
	return all, len(all), nil
}

func (w *world) AnswerStep(_ context.Context, req parley.AnswerRequest) (parley.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.at(req.Run)
	if r == nil {
		return parley.Run{}, missing("run", req.Run)
	}
	if req.Choice != "" || len(r.run.Steps) > 0 && r.run.Steps[0].Approval != nil {
		return r.vote(req)
	}
	i := slices.IndexFunc(r.run.Steps, func(s parley.Step) bool {
		return s.Question != nil && (req.Step == "" || s.ID == req.Step)
	})
	if i < 0 {
		return parley.Run{}, parley.Errorf(parley.CodeConflict, "No step of run %s waits for an answer: it is %s", req.Run, r.run.Status)
	}
	r.say(parley.EventStepAnswered, r.run.Steps[i].ID, 1, `{"reply":{},"by":"`+req.Reply.By+`"}`)
	r.run.Steps = slices.Clone(r.run.Steps)
	r.run.Steps[i].Question, r.run.Steps[i].Phase = nil, parley.PhaseWorking
	taken := r.run
	r.run.Steps = nil
	r.step("greet", "greeter", `{"text":"Hello!"}`)
	r.run.Output, _ = json.Marshal(map[string]any{"text": req.Reply.Text, "data": req.Reply.Data})
	r.end(parley.EventRunCompleted, parley.RunCompleted, `{"output":null}`)
	return taken, nil
}

// Detect asks the agent of a test over the network, as a server does.
func (v worldAgents) Detect(ctx context.Context, spec parley.AgentSpec) (parley.Detection, error) {
	g := parley.Agent{ProtocolConfig: spec.ProtocolConfig}
	if spec.URL == nil {
		known, err := v.Get(ctx, *spec.Name)
		if err != nil {
			return parley.Detection{}, err
		}
		g.URL = known.URL
	}
	set(&g.URL, spec.URL)
	return v.look(ctx, g)
}

func (v worldAgents) look(ctx context.Context, g parley.Agent) (parley.Detection, error) {
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	defer x.Close()
	return agentcard.New(agentcard.Config{Exchange: x, Now: epoch, NewID: func() string { return "1" }}).Detect(ctx, g)
}

func (v worldAgents) Check(ctx context.Context, ref, _ string) (parley.AgentCheck, error) {
	g, err := v.Get(ctx, ref)
	if err != nil {
		return parley.AgentCheck{}, err
	}
	check := parley.AgentCheck{Health: parley.AgentHealth{Healthy: true, Message: "The agent answered 404 Not Found", At: epoch()}}
	found, err := v.look(ctx, g)
	if err != nil {
		check.Health.Healthy, check.Health.Message = false, "nobody answers"
		check.Failure, _ = errors.AsType[*parley.Error](err)
		return check, nil
	}
	check.Found = &found
	if before, ok := parley.ReadDetection(g.Detected); !ok || before.URL != found.URL {
		check.Changes = []string{"url: " + before.URL + " → " + found.URL}
	}
	return check, nil
}
