package api

import (
	"fmt"

	"github.com/parley-project/parley"
)

// limitsBody is the limits of an agent beside max_concurrent.
type limitsBody struct {
	Adaptive   *bool   `json:"adaptive,omitempty" doc:"Whether the bound on the calls in flight follows what the agent can take (429, 503, timeouts); default true."`
	Rate       float64 `json:"rate,omitempty" minimum:"0" maximum:"10000" doc:"Calls per second that may begin; 0 is no bound. A text such as 90/m is taken, too."`
	Burst      int     `json:"burst,omitempty" minimum:"0" maximum:"100000" doc:"Calls that may begin at once after a pause; goes with rate; default a tenth of a second's worth."`
	Queue      int     `json:"queue,omitempty" minimum:"0" maximum:"65536" doc:"Tasks that wait in memory; default what the agent does in 2 s, at least 1024."`
	QueueBytes int64   `json:"queue_bytes,omitempty" minimum:"0" maximum:"1073741824" doc:"Their bytes, at least 65536; 0 is the default, 16 MiB."`
}

func showLimits(l parley.AgentLimits) *limitsBody {
	if l == (parley.AgentLimits{}) {
		return nil
	}
	b := &limitsBody{Rate: l.Rate, Burst: l.Burst, Queue: l.Queue, QueueBytes: l.QueueBytes}
	if l.Fixed {
		b.Adaptive = new(false)
	}
	return b
}

// agentLimits reads the members limits, which null and {} set to their defaults,
// and priority.
func agentLimits(o *object, spec *parley.AgentSpec) {
	if v := o.integer("priority", 0, parley.MaxPriority); v != nil {
		spec.Priority = new(int(*v))
	}
	if v, ok := o.members["limits"]; ok && v.Kind() == 'n' {
		o.take("limits")
		spec.Limits = &parley.AgentLimits{}
		return
	}
	in := o.object("limits")
	if in == nil {
		return
	}
	var l parley.AgentLimits
	if v := in.integer("concurrency", 0, 10000); v != nil {
		if spec.MaxConcurrent != nil {
			in.wrong("concurrency", "value", "value_error", "says the same as max_concurrent: give one of them")
		}
		spec.MaxConcurrent = new(int(*v))
	}
	if v := in.boolean("adaptive"); v != nil {
		l.Fixed = !*v
	}
	if v := in.rate("rate"); v != nil {
		l.Rate = *v
	}
	if v := in.integer("burst", 0, parley.MaxBurst); v != nil {
		l.Burst = int(*v)
	}
	if l.Burst > 0 && l.Rate == 0 {
		in.wrong("burst", "value", "value_error", "goes with rate: give that, too, or leave burst out")
	}
	if v := in.integer("queue", 0, parley.MaxQueue); v != nil {
		l.Queue = int(*v)
	}
	if v := in.integer("queue_bytes", 0, parley.MaxQueueBytes); v != nil {
		if l.QueueBytes = *v; *v > 0 && *v < parley.MinQueueBytes {
			in.wrong("queue_bytes", "value", "greater_than_equal", fmt.Sprintf("must be 0 (16 MiB) or at least %d", parley.MinQueueBytes))
		}
	}
	in.unknown()
	spec.Limits = &l
}

// rate takes calls per second, as a number or as a text such as 90/m.
func (o *object) rate(name string) *float64 {
	if v, ok := o.members[name]; !ok || v.Kind() != '"' {
		v := o.number(name, 0, parley.MaxRate)
		if v != nil && *v > 0 && *v < parley.MinRate {
			o.wrong(name, "value", "greater_than_equal", "must be 0 (no bound) or at least 1/h")
			return nil
		}
		return v
	}
	text := o.text(name, 1, 40)
	if text == nil {
		return nil
	}
	v, ok := parley.ParseRate(*text)
	if !ok || v < parley.MinRate || v > parley.MaxRate {
		o.wrong(name, "value", "value_error", fmt.Sprintf("must be a rate of 1/h to %d/s, such as 10/s or 90/m", parley.MaxRate))
		return nil
	}
	return &v
}
