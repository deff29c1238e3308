package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// conditionBody says how an agent does. Its first five members are those of the
// existing platform, for one look at the agent; where nobody looks now, they are
// of the newest look in the background.
type conditionBody struct {
	Status         string          `json:"status" enum:"healthy,unhealthy,unknown" doc:"unknown only where nobody looks now."`
	Message        string          `json:"message"`
	ResponseTimeMS *float64        `json:"response_time_ms" doc:"Null if nobody has looked."`
	Timestamp      *time.Time      `json:"timestamp" doc:"Of the look; null if nobody has looked."`
	AgentCard      json.RawMessage `json:"agent_card" doc:"What was read now, if it is a JSON object; else null."`

	Agent        string     `json:"agent"`
	CheckedAt    *time.Time `json:"checked_at" doc:"The newest look in the background; null for none."`
	LastChangeAt *time.Time `json:"last_change_at" doc:"When looks in the background have changed the status; null for never."`
	Failures     int        `json:"consecutive_failures" doc:"How many of the newest looks in the background have failed in a row; two make unhealthy."`
	Calls        callsBody  `json:"calls"`
	InFlight     int        `json:"in_flight" doc:"Calls that all bridges have under way at it."`
	Circuit      string     `json:"circuit" enum:"closed,open,half_open"`
}

// callsBody are the newest calls of an agent that have ended.
type callsBody struct {
	Count     int      `json:"count" doc:"Without those that were cancelled."`
	Errors    int      `json:"errors"`
	ErrorRate float64  `json:"error_rate" doc:"From 0 to 1; 0 without calls."`
	P50MS     *float64 `json:"p50_ms" doc:"Percentiles of the time from the claim of a call to its end; null without calls."`
	P95MS     *float64 `json:"p95_ms"`
	P99MS     *float64 `json:"p99_ms"`
	WindowS   float64  `json:"window_s" doc:"The time that the calls are of, in seconds."`
}

// healthCheckBody says how an agent is looked at in the background.
type healthCheckBody struct {
	Enabled    bool  `json:"enabled" required:"false" doc:"Default true."`
	IntervalMS int64 `json:"interval_ms,omitempty" required:"false" minimum:"1000" maximum:"3600000"`
	TimeoutMS  int64 `json:"timeout_ms,omitempty" required:"false" minimum:"100" maximum:"30000"`
}

func showHealthCheck(h *parley.HealthCheck) *healthCheckBody {
	if h == nil {
		return nil
	}
	return &healthCheckBody{Enabled: !h.Off, IntervalMS: h.Interval.Milliseconds(), TimeoutMS: h.Timeout.Milliseconds()}
}

// agentHealthCheck reads the member health; null, and {}, is the zero value, which
// removes it.
func agentHealthCheck(o *object) *parley.HealthCheck {
	if v, ok := o.members["health"]; ok && v.Kind() == 'n' {
		o.take("health")
		return &parley.HealthCheck{}
	}
	in := o.object("health")
	if in == nil {
		return nil
	}
	var h parley.HealthCheck
	if v := in.boolean("enabled"); v != nil {
		h.Off = !*v
	}
	if v := in.integer("interval_ms", 1000, 3_600_000); v != nil {
		h.Interval = time.Duration(*v) * time.Millisecond
	}
	if v := in.integer("timeout_ms", 100, 30_000); v != nil {
		h.Timeout = time.Duration(*v) * time.Millisecond
	}
	in.unknown()
	return &h
}

func makeCondition(c parley.AgentCondition) conditionBody {
	h := c.Health
	out := conditionBody{
		Status: string(h.Status), Message: h.Message, Timestamp: orNil(h.CheckedAt.UTC()), Agent: h.Agent,
		CheckedAt: orNil(h.CheckedAt.UTC()), LastChangeAt: orNil(h.ChangedAt.UTC()), Failures: h.Failures,
		InFlight: c.InFlight, Circuit: string(c.Circuit), Calls: makeCalls(c.Calls),
	}
	if !h.CheckedAt.IsZero() {
		out.ResponseTimeMS = new(inMS(h.Took))
	}
	return out
}

func makeCalls(s parley.CallStats) callsBody {
	out := callsBody{Count: s.Count, Errors: s.Errors, ErrorRate: s.ErrorRate(), WindowS: s.Window.Seconds()}
	if s.Count > 0 {
		out.P50MS, out.P95MS, out.P99MS = new(inMS(s.P50)), new(inMS(s.P95)), new(inMS(s.P99))
	}
	return out
}

// inMS gives milliseconds to three places.
func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// agentHealth looks at an agent, as old clients expect it, unless what was seen in
// the background is enough.
func (s *server) agentHealth(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	fresh := q.get("fresh") == "" || q.boolean("fresh")
	if err := q.done(); err != nil {
		return err
	}
	var now healthBody
	if fresh {
		got, err := s.cfg.Agents.Health(r.Context(), r.PathValue("ref"))
		if err != nil {
			return err
		}
		now = makeHealth(got)
	}
	condition, err := s.cfg.Conditions.Condition(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	body := makeCondition(condition)
	if fresh {
		body.Status, body.Message, body.ResponseTimeMS, body.Timestamp, body.AgentCard = now.Status, now.Message, &now.ResponseTimeMS, &now.Timestamp, now.AgentCard
	}
	s.reply(w, r, http.StatusOK, body)
	return nil
}

// agentsHealth says how agents do; nobody looks at them now.
func (s *server) agentsHealth(w http.ResponseWriter, r *http.Request) error {
	req, page, err := agentsQuery(r)
	if err != nil {
		return err
	}
	var items []parley.AgentCondition
	var total int
	if knownStatus(req.Status) {
		if items, total, err = s.cfg.Conditions.Conditions(r.Context(), req); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeCondition), total, page))
	return nil
}

func (s *server) healthRoutes() []route {
	const tag = "agents"
	ref := pathParam("ref", "The agent's id or name.")
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/agents/{ref}/health", id: "check-agent", tag: tag, old: true,
			summary: "Look at an agent once, and say how it does",
			params: []*huma.Param{ref, queryParam("fresh", huma.TypeBoolean,
				"Default true: look at it now. false: what was seen in the background.")},
			answers: ok(conditionBody{}), errors: []int{404, 422, 502, 504}, handle: s.agentHealth,
		},
		{
			method: http.MethodGet, path: "/api/v1/agents:health", id: "list-health", tag: tag,
			summary: "Say how agents do, by looks in the background and by their calls, also deleted ones",
			params: append(pageParams(), queryParam("name", huma.TypeString, "The exact name."),
				queryParam("protocol", huma.TypeString, "The protocol's name."), statusParam()),
			answers: ok(pageOf[conditionBody]{}), errors: []int{422}, handle: s.agentsHealth,
		},
	}
}
