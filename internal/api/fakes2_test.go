package api

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

type fakeWorkflows struct{ *world }

func (w *world) findWorkflow(ref string) (*parley.WorkflowVersion, error) {
	if w.broken != nil {
		return nil, w.broken
	}
	for _, v := range slices.Backward(w.workflows) {
		if v.ID == ref || v.Workflow == ref || v.Name == ref || v.Workflow+"@"+v.Version == ref {
			return v, nil
		}
	}
	return nil, parley.Errorf(parley.CodeNotFound, "Workflow with id '%s' not found", ref)
}

// parse reads as much of a document as the tests need.
func parse(req parley.ApplyRequest) (parley.WorkflowVersion, parley.Problems) {
	v := parley.WorkflowVersion{Source: string(req.Source), Format: "yaml"}
	var plan struct {
		Workflow    string `json:"workflow_id"`
		Name        string `json:"name"`
		Version     string `json:"version"`
		Description string `json:"description"`
		Steps       map[string]struct {
			Type  string `json:"type"`
			Agent string `json:"agent_name"`
		} `json:"steps"`
	}
	problem := func(code, path, text string) parley.Problems {
		return parley.Problems{{File: req.File, Line: 2, Col: 3, Path: path, Severity: parley.SeverityError, Code: code, Text: text}}
	}
	if json.Unmarshal(req.Source, &plan) != nil {
		for line := range strings.SplitSeq(string(req.Source), "\n") {
			if name, ok := strings.CutPrefix(line, "name: "); ok {
				v.Name = name
			}
			if version, ok := strings.CutPrefix(line, "version: "); ok {
				v.Version = version
			}
		}
		v.Steps = []parley.StepSummary{{ID: "first", Kind: "agent", Agent: "A"}}
	} else {
		v.Format, v.Name, v.Workflow, v.Version, v.Description = "json", plan.Name, plan.Workflow, plan.Version, plan.Description
		for id, s := range plan.Steps {
			if s.Agent == "Ghost" {
				return v, problem(string(parley.CodeUnknownAgent), "steps."+id+".agent_name", "Agent 'Ghost' not found")
			}
			v.Steps = append(v.Steps, parley.StepSummary{ID: id, Kind: "agent", Agent: s.Agent})
		}
		slices.SortFunc(v.Steps, func(a, b parley.StepSummary) int { return strings.Compare(a.ID, b.ID) })
	}
	if v.Name == "" {
		return v, problem("required", "name", "name is missing")
	}
	if v.Workflow == "" {
		v.Workflow = "wf-" + v.Name
	}
	return v, nil
}

func (f fakeWorkflows) Apply(_ context.Context, req parley.ApplyRequest) (parley.WorkflowVersion, bool, error) {
	f.mu.Lock()
	meanwhile := f.meanwhile
	f.meanwhile = nil
	f.mu.Unlock()
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return parley.WorkflowVersion{}, false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies = append(f.applies, req)
	if f.broken != nil {
		return parley.WorkflowVersion{}, false, f.broken
	}
	at := f.now()
	if req.Replace != "" && len(req.Source) == 0 {
		v, err := f.findWorkflow(req.Replace)
		if err != nil {
			return parley.WorkflowVersion{}, false, err
		}
		v.Status, v.UpdatedAt, v.UpdatedBy = req.Status, at, req.By
		return *v, false, nil
	}
	v, problems := parse(req)
	if problems != nil {
		return parley.WorkflowVersion{}, false, problems
	}
	v.Status, v.CreatedAt, v.UpdatedAt, v.CreatedBy, v.UpdatedBy = parley.AgentActive, at, at, req.By, req.By
	v.Number = 1
	for _, old := range f.workflows {
		if old.Name == v.Name {
			if !req.Always && old.Source == v.Source {
				return *old, false, nil
			}
			v.Number = old.Number + 1
		}
	}
	if v.Version == "" {
		v.Version = strconv.Itoa(v.Number)
	}
	if req.Replace != "" {
		old, err := f.findWorkflow(req.Replace)
		if err != nil {
			return parley.WorkflowVersion{}, false, err
		}
		if req.Base != 0 && req.Base != old.Number {
			return parley.WorkflowVersion{}, false, parley.Errorf(parley.CodeConflict, "changed meanwhile")
		}
		v.ID, v.CreatedAt, v.CreatedBy = old.ID, old.CreatedAt, old.CreatedBy
		if req.Status != "" {
			v.Status = req.Status
		}
		*old = v
		return v, true, nil
	}
	v.ID = uuidOf(1, len(f.workflows)+1)
	f.workflows = append(f.workflows, &v)
	return v, true, nil
}

func (f fakeWorkflows) Validate(_ context.Context, req parley.ApplyRequest) parley.Problems {
	_, problems := parse(req)
	return problems
}

func (f fakeWorkflows) Get(_ context.Context, ref string) (parley.WorkflowVersion, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.findWorkflow(ref)
	if err != nil {
		return parley.WorkflowVersion{}, err
	}
	return *v, nil
}

func (f fakeWorkflows) List(_ context.Context, q parley.WorkflowQuery) ([]parley.WorkflowVersion, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, 0, f.broken
	}
	var all []parley.WorkflowVersion
	for _, v := range f.workflows {
		if (q.Name == "" || v.Name == q.Name) && (q.Status == "" || v.Status == q.Status) {
			all = append(all, *v)
		}
	}
	if !q.Ascending {
		slices.Reverse(all)
	}
	return window(all, q.Page), len(all), nil
}

func (f fakeWorkflows) Versions(_ context.Context, ref string, p parley.Page) ([]parley.WorkflowVersion, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.findWorkflow(ref)
	if err != nil {
		return nil, 0, err
	}
	var all []parley.WorkflowVersion
	for _, o := range slices.Backward(f.workflows) {
		if o.Name == v.Name {
			all = append(all, *o)
		}
	}
	return window(all, p), len(all), nil
}

func (f fakeWorkflows) Remove(_ context.Context, ref, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.findWorkflow(ref)
	if err == nil {
		v.Status = parley.AgentDeleted
	}
	return err
}

type fakeAgents struct{ *world }

func (w *world) findAgent(ref string) (*parley.Agent, error) {
	if w.broken != nil {
		return nil, w.broken
	}
	for _, a := range w.agents {
		if a.ID == ref || a.Name == ref {
			return a, nil
		}
	}
	return nil, parley.Errorf(parley.CodeNotFound, "Agent with id '%s' not found", ref)
}

func (f fakeAgents) Add(_ context.Context, spec parley.AgentSpec) (parley.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	if f.broken != nil {
		return parley.Agent{}, f.broken
	}
	if a, _ := f.findAgent(*spec.Name); a != nil {
		return parley.Agent{}, parley.Errorf(parley.CodeConflict, "Agent with name '%s' already exists", *spec.Name)
	}
	var detected []byte
	if p := spec.Protocol; p != nil && *p == parley.ProtocolAuto {
		spec.Protocol = new(parley.ProtocolJSONRPC)
		detected = []byte(`{"protocol":"jsonrpc-2.0","url":"` + *spec.URL + `","version":"1.0","explanation":["because"]}`)
	}
	a := &parley.Agent{
		Detected: detected,
		ID:       uuidOf(2, len(f.agents)+1), Name: *spec.Name, Protocol: parley.ProtocolSimpleA2A, Timeout: 30 * time.Second,
		Retry: parley.DefaultRetryConfig(), Status: parley.AgentActive, CreatedAt: f.now(), CreatedBy: spec.By,
	}
	if err := f.change(a, spec); err != nil {
		return parley.Agent{}, err
	}
	f.agents = append(f.agents, a)
	return *a, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (f fakeAgents) change(a *parley.Agent, spec parley.AgentSpec) error {
	if p := spec.Protocol; p != nil && *p != parley.ProtocolSimpleA2A && *p != parley.ProtocolJSONRPC {
		return parley.Errorf(parley.CodeUnsupportedProtocol, "protocol is not supported; supported: jsonrpc-2.0, simple-a2a")
	}
	set(&a.URL, spec.URL)
	set(&a.Description, spec.Description)
	set(&a.Protocol, spec.Protocol)
	set(&a.Timeout, spec.Timeout)
	set(&a.Retry, spec.Retry)
	set(&a.OutcomeUnknown, spec.OutcomeUnknown)
	set(&a.Idempotent, spec.Idempotent)
	set(&a.MaxConcurrent, spec.MaxConcurrent)
	set(&a.Limits, spec.Limits)
	set(&a.Priority, spec.Priority)
	if b := spec.Breaker; b != nil {
		a.Breaker = nil
		if *b != (parley.Breaker{}) {
			a.Breaker = b
		}
	}
	if h := spec.Health; h != nil {
		a.Health = nil
		if *h != (parley.HealthCheck{}) {
			a.Health = h
		}
	}
	set(&a.Status, spec.Status)
	if spec.ProtocolConfig != nil {
		a.ProtocolConfig = spec.ProtocolConfig
	}
	if s := spec.Auth; s != nil {
		keep := a.Auth.Secret
		a.Auth = parley.Auth{Type: s.Type, Header: s.Header, Secret: s.Secret}
		if !s.Literal.IsZero() {
			a.Auth.Secret = "sealed:x"
		} else if s.Secret == "" && s.Type != parley.AuthNone {
			a.Auth.Secret = keep
		}
	}
	a.UpdatedAt, a.UpdatedBy = f.now(), spec.By
	return nil
}

func (f fakeAgents) Update(_ context.Context, ref string, spec parley.AgentSpec) (parley.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	a, err := f.findAgent(ref)
	if err != nil {
		return parley.Agent{}, err
	}
	if err := f.change(a, spec); err != nil {
		return parley.Agent{}, err
	}
	return *a, nil
}

func (f fakeAgents) Get(_ context.Context, ref string) (parley.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.findAgent(ref)
	if err != nil {
		return parley.Agent{}, err
	}
	return *a, nil
}

func (f fakeAgents) List(_ context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, 0, f.broken
	}
	var all []parley.Agent
	for _, a := range f.agents {
		if (q.Name == "" || a.Name == q.Name) && (q.Status == "" || a.Status == q.Status) && (q.Protocol == "" || a.Protocol == q.Protocol) {
			all = append(all, *a)
		}
	}
	return window(all, q.Page), len(all), nil
}

func (f fakeAgents) Remove(_ context.Context, ref, by string) (parley.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.findAgent(ref)
	if err != nil {
		return parley.Agent{}, err
	}
	a.Status, a.UpdatedAt, a.UpdatedBy = parley.AgentDeleted, f.now(), by
	return *a, nil
}

// Detect finds A2A 1.0 at every URL but those that hold "gone".
func (f fakeAgents) Detect(_ context.Context, spec parley.AgentSpec) (parley.Detection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	if f.broken != nil {
		return parley.Detection{}, f.broken
	}
	if spec.URL == nil {
		a, err := f.findAgent(*spec.Name)
		if err != nil {
			return parley.Detection{}, err
		}
		spec.URL = &a.URL
	}
	if strings.Contains(*spec.URL, "gone") {
		e := parley.Errorf(parley.CodeAgentUnavailable, "GET %s: no connection", *spec.URL)
		e.Retryable = true
		return parley.Detection{}, e.WithDetails(map[string][]string{"explanation": {"pinned in protocol_config: a2a 1.0"}})
	}
	return parley.Detection{
		Protocol: parley.ProtocolJSONRPC, URL: *spec.URL, Binding: "JSONRPC", Version: "1.0", Streaming: true, Name: "Found",
		CardURL: "http://a.example/.well-known/agent-card.json", Signature: "none", Explanation: []string{"interface 1 (JSONRPC 1.0) is taken"}, At: f.now(),
		Auth: &parley.AuthProposal{Type: parley.AuthBearer},
	}, nil
}

func (f fakeAgents) Check(ctx context.Context, ref, by string) (parley.AgentCheck, error) {
	h, err := f.Health(ctx, ref)
	if err != nil || !h.Healthy {
		return parley.AgentCheck{Health: h, Failure: parley.Errorf(parley.CodeAgentUnavailable, "no connection")}, err
	}
	f.mu.Lock()
	if a, e := f.findAgent(ref); e == nil {
		a.UpdatedBy = by
	}
	f.mu.Unlock()
	url := "http://a.example/"
	found, err := f.Detect(ctx, parley.AgentSpec{URL: &url})
	return parley.AgentCheck{Health: h, Found: &found, Changes: []string{"version: 0.3 → 1.0"}, Stored: true}, err
}

func (f fakeAgents) Health(_ context.Context, ref string) (parley.AgentHealth, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.findAgent(ref)
	if err != nil {
		return parley.AgentHealth{}, err
	}
	h := parley.AgentHealth{Healthy: true, Message: "Agent is reachable", ResponseTime: 12500 * time.Microsecond, At: f.now()}
	if a.Protocol == parley.ProtocolJSONRPC {
		h.Card = json.RawMessage(`{"name":"A"}`)
	}
	if a.Status != parley.AgentActive {
		h.Healthy, h.Message = false, "connection refused"
	}
	return h, nil
}
