package zonetest

import (
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// A Case is requests to one Execution Zone, one after another.
type Case struct {
	Name      string
	Profile   zone.Profile // ProfileRelaxed if not set
	SyncLimit time.Duration
	Steps     []Step
}

// A Step is one request and the response that it must have.
type Step struct {
	// Do is done before.
	Do string
	// Send is the body of the request, Want that of the response; $any in it stands
	// for some text.
	Send, Want string
	// Starts is how many tasks were begun until now, if it is not 0.
	Starts int
}

// What a Step may do.
const (
	DoFinish = "finish" // ends the tasks that run
	DoDrain  = "drain"  // the zone is about to stop
)

// ids that are tasks.
const (
	id1 = `"6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b10"`
)

// Cases returns the table.
func Cases() []Case {
	return []Case{
		{Name: "answer", Steps: []Step{{
			Send: `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"say hello","correlation_id":"c-1"},"id":` + id1 + `}`,
			Want: `{"jsonrpc":"2.0","result":{"status":"success","response_text":"hello","correlation_id":"c-1"},"id":` + id1 + `}`,
		}}},
	}
}
