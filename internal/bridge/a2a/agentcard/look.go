package agentcard

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// maxLook bounds what is said about a look, in characters.
const maxLook = 500

// Look fetches the card of agent once from where it was found, and says whether
// the agent is well; ok is false if nobody has found one. What is remembered of
// the agent, and how it is called, stays as it is.
//
// An agent is healthy if a card is there, or if it answers with 4xx: then it
// lives. What takes the place of the card (a page, a redirect, an answer without
// end, one of more than 1 MiB) says that somebody else answers, or that it is
// not well. What cannot be reached is unhealthy, not an error.
func (d *Detector) Look(ctx context.Context, agent parley.Agent) (h parley.AgentHealth, ok bool) {
	found, known := parley.ReadDetection(agent.Detected)
	if !known || found.CardURL == "" {
		return h, false
	}
	begun := d.cfg.Now()
	reply, err := d.cfg.Exchange.Ask(ctx, agent, bridge.Inquiry{
		URL: found.CardURL, Header: http.Header{"A2A-Version": {V10}}, Limit: MaxBody,
	})
	h = parley.AgentHealth{At: begun, ResponseTime: max(d.cfg.Now().Sub(begun), 0)}
	if err != nil {
		h.Message = clean("The agent card could not be read: "+messageOf(err), maxLook)
		return h, true
	}
	if h.Healthy, h.Message = bridge.HealthOf(reply.Status); reply.Status != http.StatusOK {
		return h, true
	}
	if _, err := Parse(reply.Body); err != nil {
		media, _, _ := strings.Cut(reply.Header.Get("Content-Type"), ";")
		h.Healthy, h.Message = false, clean(fmt.Sprintf("There is no agent card at %s any more (%s): %s", found.CardURL, word(media), messageOf(err)), maxLook)
		return h, true
	}
	h.Message, h.Card, h.CardHash = "The agent card is there", reply.Body, hashOf(reply.Body)
	return h, true
}
