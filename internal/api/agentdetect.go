package api

import (
	"encoding/json"
	"net/http"

	"github.com/parley-project/parley"
)

// agentDetect is what a detection is asked with: an agent that need not have a
// name, or the name of one that is registered.
type agentDetect struct {
	_    struct{} `additionalProperties:"true"`
	Name string   `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Without a url: an agent that is registered."`
	URL  string   `json:"url,omitempty" minLength:"1" maxLength:"2083" format:"uri"`
	AgentFields
}

// checkBody is what a new look at an agent showed: its health, what was found,
// and what is not as its record says.
type checkBody struct {
	Health   healthBody        `json:"health"`
	Detected *parley.Detection `json:"detected" doc:"What was found; null if nothing was, for the reason in error, or if its protocol has no cards."`
	Error    *parley.Error     `json:"error,omitempty"`
	Changes  []string          `json:"changes" doc:"What is not as the record says, one change a line."`
	Stored   bool              `json:"stored" doc:"The record holds what was found now."`
}

// detectAgent finds out how an agent is called and stores nothing.
func (s *server) detectAgent(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	spec := parley.AgentSpec{By: callerOf(r)}
	if spec.Name = o.text("name", 1, maxText); spec.Name == nil && !o.has("url") {
		o.need("url")
	}
	agentMembers(o, &spec, nil)
	if err := o.done(false); err != nil {
		return err
	}
	if spec.URL == nil && spec.Name == nil {
		return invalid([]finding{bodyFinding("url", "required", "missing", "must not be null")})
	}
	found, err := s.cfg.Agents.Detect(r.Context(), spec)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, showFound(&found))
	return nil
}

// checkAgent looks at an agent anew.
func (s *server) checkAgent(w http.ResponseWriter, r *http.Request) error {
	got, err := s.cfg.Agents.Check(r.Context(), r.PathValue("ref"), callerOf(r))
	if err != nil {
		return err
	}
	changes := got.Changes
	if changes == nil {
		changes = []string{}
	}
	s.reply(w, r, http.StatusOK, checkBody{
		Health: makeHealth(got.Health), Detected: showFound(got.Found), Error: got.Failure, Changes: changes, Stored: got.Stored,
	})
	return nil
}

func makeHealth(h parley.AgentHealth) healthBody {
	out := healthBody{
		Status: "unhealthy", Message: h.Message, Timestamp: h.At.UTC(), AgentCard: h.Card,
		ResponseTimeMS: float64(h.ResponseTime.Microseconds()) / 1000,
	}
	if h.Healthy {
		out.Status = "healthy"
	}
	return out
}

// showDetected gives what is known about how an agent is called, nil for
// nothing.
func showDetected(stored json.RawMessage) *parley.Detection {
	if d, ok := parley.ReadDetection(stored); ok {
		return showFound(&d)
	}
	return nil
}

// showFound gives d with its time as the API writes times; nil stays nil.
func showFound(d *parley.Detection) *parley.Detection {
	if d == nil {
		return nil
	}
	shown := *d
	shown.At = d.At.UTC()
	return &shown
}
