package registry

import (
	"math"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// checkLimits reports what is wrong with limits; zeros are the defaults.
func checkLimits(l parley.AgentLimits, f *faults) {
	if math.IsNaN(l.Rate) || l.Rate != 0 && (l.Rate < parley.MinRate || l.Rate > parley.MaxRate) {
		f.add("limits.rate", faultValue, "must be 0 (no bound), or 1/h to %d/s", parley.MaxRate)
	}
	switch {
	case l.Burst < 0 || l.Burst > parley.MaxBurst:
		f.add("limits.burst", faultValue, "must be 0 (a tenth of a second's worth of rate) to %d calls", parley.MaxBurst)
	case l.Burst > 0 && l.Rate == 0:
		f.add("limits.burst", faultValue, "goes with limits.rate: give that, too, or leave burst out")
	}
	if l.Queue < 0 || l.Queue > parley.MaxQueue {
		f.add("limits.queue", faultValue, "must be 0 (what the agent does in 2 s) to %d tasks", parley.MaxQueue)
	}
	if l.QueueBytes != 0 && (l.QueueBytes < parley.MinQueueBytes || l.QueueBytes > parley.MaxQueueBytes) {
		f.add("limits.queue_bytes", faultValue, "must be 0 (16 MiB), or 64KiB to 1GiB")
	}
}

// limits reads the member limits of an agents file.
func (a *entryReader) limits(n *yaml.Node, spec *parley.AgentSpec) {
	path := a.path + ".limits"
	members := a.members(n, path, []string{"concurrency", "adaptive", "rate", "burst", "queue", "queue_bytes"})
	if members == nil {
		return
	}
	for name, n := range members {
		a.at["limits."+name] = place{n, path + "." + name}
	}
	var l parley.AgentLimits
	if n := members["concurrency"]; n != nil {
		spec.MaxConcurrent = a.integer(n, path+".concurrency")
	}
	if n := members["adaptive"]; n != nil {
		if v := a.boolean(n, path+".adaptive"); v != nil {
			l.Fixed = !*v
		}
	}
	if n := members["rate"]; n != nil {
		set(&l.Rate, a.rate(n, path+".rate"))
	}
	if n := members["burst"]; n != nil {
		set(&l.Burst, a.integer(n, path+".burst"))
	}
	if n := members["queue"]; n != nil {
		set(&l.Queue, a.integer(n, path+".queue"))
	}
	if n := members["queue_bytes"]; n != nil {
		set(&l.QueueBytes, a.size(n, path+".queue_bytes"))
	}
	spec.Limits = &l
}

// rate reads "10/s", or a number of calls per second.
func (a *entryReader) rate(n *yaml.Node, path string) *float64 {
	s, ok := a.scalar(n, path, "a rate such as 10/s or 90/m", "!!str", "!!int", "!!float")
	if !ok {
		return nil
	}
	if v, ok := parley.ParseRate(s); ok {
		return &v
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		a.problem(n, path, faultType, "must be a rate such as 10/s, 90/m or 1000/h, or a number of calls per second")
		return nil
	}
	return &v
}

var sizeForm = regexp.MustCompile(`^(\d{1,9})(KiB|MiB|GiB)?$`)

// size reads "16MiB", or a number of bytes.
func (a *entryReader) size(n *yaml.Node, path string) *int64 {
	s, ok := a.scalar(n, path, "a size such as 16MiB", "!!str", "!!int")
	if !ok {
		return nil
	}
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		a.problem(n, path, faultType, "must be a size such as 512KiB or 16MiB")
		return nil
	}
	v, _ := strconv.ParseInt(m[1], 10, 64) // at most 9 digits
	v <<= map[string]uint{"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	return &v
}
