package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// limitsSpec reads --limits: none, or the members as JSON.
func (a *app) limitsSpec(text string) (*parley.AgentLimits, error) {
	if text == "none" {
		return &parley.AgentLimits{}, nil
	}
	value, err := a.readValue("--limits", text)
	if err != nil {
		return nil, err
	}
	var in struct {
		client.Limits
		Rate any `json:"rate"`
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if len(value) == 0 || value[0] != '{' || dec.Decode(&in) != nil {
		return nil, usagef("--limits must be none, or a JSON object of adaptive, rate, burst, queue, queue_bytes").
			withHint("the calls in flight are bounded by --max-concurrent")
	}
	l := parley.AgentLimits{Burst: in.Burst, Queue: in.Queue, QueueBytes: in.QueueBytes, Fixed: in.Adaptive != nil && !*in.Adaptive}
	switch rate := in.Rate.(type) {
	case nil:
	case float64:
		l.Rate = rate
	case string:
		var ok bool
		if l.Rate, ok = parley.ParseRate(rate); !ok {
			return nil, usagef("--limits: rate must be a rate such as 10/s, 90/m or 1000/h, or a number of calls per second")
		}
	default:
		return nil, usagef("--limits: rate must be a rate such as 10/s, or a number of calls per second")
	}
	return &l, nil
}

// limitsText says in one line what a record's limits are; "" if it names none.
func limitsText(g client.Agent) string {
	var parts []string
	say := func(given bool, format string, args ...any) {
		if given {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	say(g.MaxConcurrent > 0, "%d calls at once", g.MaxConcurrent)
	if l := g.Limits; l != nil {
		say(l.Adaptive != nil && !*l.Adaptive, "not adapted")
		say(l.Rate > 0, "%s", rateText(l.Rate))
		say(l.Burst > 0, "%d after a pause", l.Burst)
		say(l.Queue > 0, "%d may wait", l.Queue)
		say(l.QueueBytes > 0, "with %d KiB", l.QueueBytes>>10)
	}
	say(g.Priority > 0, "priority %d", g.Priority)
	return strings.Join(parts, ", ")
}

// rateText gives a rate in the shortest unit of time in which it is one at least.
func rateText(perSecond float64) string {
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"m", 60}, {"h", 3600}} {
		if n := perSecond * u.seconds; n >= 1 {
			return strconv.FormatFloat(n, 'g', 6, 64) + "/" + u.name
		}
	}
	return strconv.FormatFloat(perSecond, 'g', 6, 64) + "/s"
}
