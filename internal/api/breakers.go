package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// breakerBody is a breaker as records have it (formats.md).
type breakerBody struct {
	Enabled          bool    `json:"enabled" required:"false" doc:"Default true."`
	FailureThreshold int     `json:"failure_threshold" required:"false" minimum:"1" maximum:"1000" doc:"Failures in a row that open it; default 5."`
	FailureRate      float64 `json:"failure_rate_threshold" required:"false" exclusiveMinimum:"0" maximum:"1" doc:"Share of failures that opens it; default 0.5."`
	MinimumCalls     int     `json:"minimum_calls,omitempty" minimum:"0" maximum:"100000" doc:"Calls in the window before the share counts; default failure_threshold."`
	TimeoutSeconds   float64 `json:"timeout_seconds" required:"false" minimum:"1" maximum:"3600" doc:"How long it is open; default 60."`
	HalfOpenCalls    int     `json:"half_open_max_calls" required:"false" minimum:"1" maximum:"100" doc:"Calls that then try the agent; default 3."`
	WindowSeconds    float64 `json:"window_size_seconds" required:"false" minimum:"1" maximum:"3600" doc:"Default 120."`
	OnOpen           string  `json:"on_open,omitempty" doc:"wait (default) or fail."`
}

func showBreaker(b *parley.Breaker) *breakerBody {
	if b == nil {
		return nil
	}
	return &breakerBody{
		Enabled: b.Enabled, FailureThreshold: b.FailureThreshold, FailureRate: b.FailureRate, MinimumCalls: b.MinimumCalls,
		TimeoutSeconds: b.OpenFor.Seconds(), HalfOpenCalls: b.HalfOpenCalls, WindowSeconds: b.Window.Seconds(), OnOpen: string(b.OnOpen),
	}
}

// agentBreaker reads the member breaker; null is the zero value, which removes
// it.
func agentBreaker(o *object) *parley.Breaker {
	if v, ok := o.members["breaker"]; ok && v.Kind() == 'n' {
		o.take("breaker")
		return &parley.Breaker{}
	}
	in := o.object("breaker")
	if in == nil {
		return nil
	}
	b := parley.DefaultBreaker()
	if v := in.boolean("enabled"); v != nil {
		b.Enabled = *v
	}
	for _, m := range []struct {
		name        string
		to          *int
		least, most int64
	}{
		{"failure_threshold", &b.FailureThreshold, 1, 1000},
		{"minimum_calls", &b.MinimumCalls, 0, 100_000},
		{"half_open_max_calls", &b.HalfOpenCalls, 1, 100},
	} {
		if v := in.integer(m.name, m.least, m.most); v != nil {
			*m.to = int(*v)
		}
	}
	if v := in.number("failure_rate_threshold", 0, 1); v != nil {
		b.FailureRate = *v
	}
	for _, m := range []struct {
		name string
		to   *time.Duration
	}{{"timeout_seconds", &b.OpenFor}, {"window_size_seconds", &b.Window}} {
		if v := in.number(m.name, 1, 3600); v != nil {
			*m.to = time.Duration(math.Round(*v*1000)) * time.Millisecond
		}
	}
	if v := in.word("on_open", "", "wait", "fail"); v != nil {
		b.OnOpen = parley.OnOpen(*v)
	}
	in.unknown()
	return &b
}

// circuitBody is where the circuit of an agent stands.
type circuitBody struct {
	Agent   string `json:"agent"`
	State   string `json:"state" enum:"closed,open,half_open"`
	Manual  bool   `json:"manual" doc:"It was opened by hand, and has to be closed by hand."`
	Breaker bool   `json:"breaker" doc:"The agent's record names a breaker that is enabled."`
	// Since is null if it was never open, Until if it is closed or manual.
	Since    *time.Time `json:"since"`
	Until    *time.Time `json:"until" doc:"When the agent may be tried again."`
	Reason   *string    `json:"reason"`
	By       *string    `json:"by"`
	Openings int64      `json:"openings" doc:"How often failures have opened it."`
}

func makeCircuit(b parley.BreakerState, set *parley.Breaker) circuitBody {
	return circuitBody{
		Agent: b.Agent, State: string(b.Circuit), Manual: b.Manual, Breaker: set != nil && set.Enabled, Since: orNil(b.Since.UTC()),
		Until: orNil(b.Until.UTC()), Reason: orNil(b.Reason), By: orNil(b.By), Openings: b.Openings,
	}
}

// orderBody documents what somebody wants of a circuit; switchBreaker reads it.
type orderBody struct {
	Action string `json:"action" enum:"open,close"`
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

func (s *server) getBreaker(w http.ResponseWriter, r *http.Request) error {
	state, err := s.cfg.Breakers.Breaker(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	return s.replyCircuit(w, r, state)
}

func (s *server) replyCircuit(w http.ResponseWriter, r *http.Request, state parley.BreakerState) error {
	agent, err := s.cfg.Agents.Get(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeCircuit(state, agent.Breaker))
	return nil
}

func (s *server) switchBreaker(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	order := parley.BreakerOrder{By: callerOf(r)}
	o.require("action")
	if v := o.word("action", "open", "close"); v != nil {
		order.Open = *v == "open"
	}
	if v := o.text("reason", 0, 500); v != nil {
		order.Reason = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	state, err := s.cfg.Breakers.Switch(r.Context(), r.PathValue("ref"), order)
	if err != nil {
		return err
	}
	return s.replyCircuit(w, r, state)
}

// agentEventsPage is one page of an agent's log.
type agentEventsPage struct {
	Items []parley.AgentEvent `json:"items" nullable:"false"`
	// NextAfter is the seq to go on after.
	NextAfter int64 `json:"next_after"`
	// More says that the next page has events already.
	More bool `json:"more"`
}

// agentEvents gives a page of an agent's log, or streams it from there on.
func (s *server) agentEvents(w http.ResponseWriter, r *http.Request) error {
	ref := r.PathValue("ref")
	q, err := s.eventsQuery(r)
	if err != nil {
		return err
	}
	if q.stream {
		// Whether there is such an agent has to be known before the stream begins.
		if _, err := s.cfg.Agents.Get(r.Context(), ref); err != nil {
			return err
		}
		return s.stream(w, r, q.after, func(ctx context.Context, after int64) ([]streamed, error) {
			events, err := s.cfg.Breakers.Log(ctx, ref, after, eventBatch, true)
			return mapped(events, func(e parley.AgentEvent) streamed {
				e.At = e.At.UTC()
				return streamed{e.Seq, string(e.Type), e}
			}), err
		})
	}
	events, err := s.cfg.Breakers.Log(r.Context(), ref, q.after, q.limit+1, false)
	if err != nil {
		return err
	}
	page := agentEventsPage{Items: events, NextAfter: q.after, More: len(events) > q.limit}
	if page.More {
		page.Items = events[:q.limit]
	}
	page.Items = mapped(page.Items, func(e parley.AgentEvent) parley.AgentEvent { e.At = e.At.UTC(); return e })
	if n := len(page.Items); n > 0 {
		page.NextAfter = page.Items[n-1].Seq
	}
	s.reply(w, r, http.StatusOK, page)
	return nil
}

func (s *server) breakerRoutes() []route {
	const tag = "agents"
	ref := pathParam("ref", "The agent's id or name.")
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/agents/{ref}/breaker", id: "get-breaker", tag: tag,
			summary: "Say where the circuit of an agent stands", params: []*huma.Param{ref}, answers: ok(circuitBody{}),
			errors: []int{404}, handle: s.getBreaker,
		},
		{
			method: http.MethodPost, path: "/api/v1/agents/{ref}/breaker", id: "switch-breaker", tag: tag,
			summary: "Open the circuit of an agent by hand, until it is closed by hand, or close it; again changes nothing but the reason of an open one",
			params:  []*huma.Param{ref}, body: orderBody{}, answers: ok(circuitBody{}), errors: []int{404, 413, 415, 422}, handle: s.switchBreaker,
		},
		{
			method: http.MethodGet, path: "/api/v1/agents/{ref}/events", id: "list-agent-events", tag: tag,
			summary: "Get the log of an agent, which has its newest 1,000 entries: a page, or a stream without end",
			params:  append([]*huma.Param{ref}, eventParams()...),
			answers: []answer{{status: http.StatusOK, body: agentEventsPage{}}, {status: http.StatusOK, media: "text/event-stream"}},
			errors:  []int{404, 422, 429}, handle: s.agentEvents,
		},
	}
}
