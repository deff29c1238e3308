package a2a

// Version is a dialect of A2A.
type Version string

// The dialects. Agents of 0.2 are spoken to in V03: they differ in what they
// answer, which the reader takes as it comes.
const (
	V03 Version = "0.3"
	V10 Version = "1.0"
)

// verb is an operation of A2A, whatever a dialect calls it.
type verb int

const (
	verbSend verb = iota + 1
	verbStream
	verbGet
	verbList
	verbCancel
	verbSubscribe
)

// method is the JSON-RPC method of vb, or "" if the dialect has none: 0.3 lists
// no tasks over JSON-RPC.
func (v Version) method(vb verb) string {
	if v == V10 {
		switch vb {
		case verbSend:
			return "SendMessage"
		case verbStream:
			return "SendStreamingMessage"
		case verbGet:
			return "GetTask"
		case verbList:
			return "ListTasks"
		case verbCancel:
			return "CancelTask"
		case verbSubscribe:
			return "SubscribeToTask"
		}
		return ""
	}
	switch vb {
	case verbSend:
		return "message/send"
	case verbStream:
		return "message/stream"
	case verbGet:
		return "tasks/get"
	case verbCancel:
		return "tasks/cancel"
	case verbSubscribe:
		return "tasks/resubscribe"
	case verbList:
	}
	return ""
}

// sends says whether vb brings a message, which makes the agent work. All other
// operations may be repeated.
func (vb verb) sends() bool { return vb == verbSend || vb == verbStream }

// streams says whether vb asks for a stream of events.
func (vb verb) streams() bool { return vb == verbStream || vb == verbSubscribe }

// String is the operation's name in logs and texts for people.
func (vb verb) String() string {
	switch vb {
	case verbSend:
		return "send"
	case verbStream:
		return "stream"
	case verbGet:
		return "get"
	case verbList:
		return "list"
	case verbCancel:
		return "cancel"
	case verbSubscribe:
		return "subscribe"
	}
	return "unknown"
}
