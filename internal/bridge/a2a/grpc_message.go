package a2a

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

const (
	// maxMessages bounds the messages inside one protobuf message from an
	// agent. Two bytes are enough for one, which takes 250 bytes of memory.
	maxMessages = 1 << 19
	// maxNesting bounds how deep they are nested: three for each level of
	// bridge.MaxDepth, since a value of an object is an entry of a struct.
	maxNesting = 3*bridge.MaxDepth + 16
)

// grpcMethod is an operation of lf.a2a.v1.A2AService.
type grpcMethod struct {
	name              string
	request, response func() proto.Message
}

// grpcMethodOf gives the method of vb.
func grpcMethodOf(vb verb) (grpcMethod, bool) {
	send := func() proto.Message { return &a2apb.SendMessageRequest{} }
	task := func() proto.Message { return &a2apb.Task{} }
	event := func() proto.Message { return &a2apb.StreamResponse{} }
	switch vb {
	case verbSend:
		return grpcMethod{
			a2apb.A2AService_SendMessage_FullMethodName, send,
			func() proto.Message { return &a2apb.SendMessageResponse{} },
		}, true
	case verbStream:
		return grpcMethod{a2apb.A2AService_SendStreamingMessage_FullMethodName, send, event}, true
	case verbGet:
		return grpcMethod{
			a2apb.A2AService_GetTask_FullMethodName,
			func() proto.Message { return &a2apb.GetTaskRequest{} }, task,
		}, true
	case verbList:
		return grpcMethod{
			a2apb.A2AService_ListTasks_FullMethodName,
			func() proto.Message { return &a2apb.ListTasksRequest{} },
			func() proto.Message { return &a2apb.ListTasksResponse{} },
		}, true
	case verbCancel:
		return grpcMethod{
			a2apb.A2AService_CancelTask_FullMethodName,
			func() proto.Message { return &a2apb.CancelTaskRequest{} }, task,
		}, true
	case verbSubscribe:
		return grpcMethod{
			a2apb.A2AService_SubscribeToTask_FullMethodName,
			func() proto.Message { return &a2apb.SubscribeToTaskRequest{} }, event,
		}, true
	}
	return grpcMethod{}, false
}

// pack makes the protobuf message of params, a JSON object of the 1.0 dialect.
func (m grpcMethod) pack(params []byte) ([]byte, error) {
	if err := exactNumbers(params); err != nil {
		return nil, err
	}
	msg := m.request()
	if err := protojson.Unmarshal(params, msg); err != nil {
		return nil, fmt.Errorf("the params do not fit %s: %s", msg.ProtoReflect().Descriptor().FullName(), plainText(err))
	}
	return proto.Marshal(msg)
}

// exactNumbers refuses integers that would arrive as others: all numbers of
// google.protobuf.Value are doubles.
func exactNumbers(params []byte) error {
	const certain = 15 // digits that every double has
	for i := 0; i < len(params); i++ {
		switch c := params[i]; {
		case c == '"':
			i = endOfText(params, i)
		case c == '-', c >= '0' && c <= '9':
			n := i + 1
			for n < len(params) && strings.IndexByte("+-.eE0123456789", params[n]) >= 0 {
				n++
			}
			number := string(params[i:n])
			i = n - 1
			// A fraction is rounded by every reader of JSON.
			if len(number) > certain && !strings.ContainsAny(number, ".eE") && !isDouble(number) {
				return fmt.Errorf("the integer %s cannot travel over gRPC, whose numbers are doubles: send it as a string, or use another binding", limited(number))
			}
		}
	}
	return nil
}

// endOfText gives the place of the quote that ends the string at b[start], or
// of the end of b.
func endOfText(b []byte, start int) int {
	for i := start + 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// isDouble reports whether a double has the very value of the integer.
func isDouble(integer string) bool {
	const largest = 310 // a minus, and the digits of the largest double
	if len(integer) > largest {
		return false
	}
	whole, ok := new(big.Int).SetString(integer, 10)
	if !ok {
		return false
	}
	_, accuracy := new(big.Float).SetInt(whole).Float64()
	return accuracy == big.Exact
}

// unpack gives the JSON of a protobuf message, compact, with the names and the
// forms of the 1.0 dialect.
func (m grpcMethod) unpack(raw []byte) ([]byte, error) {
	msg := m.response()
	w := weigher{}
	if err := w.walk(raw, msg.ProtoReflect().Descriptor(), 0); err != nil {
		return nil, err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, msg); err != nil {
		return nil, err
	}
	return asJSON(msg)
}

// asJSON is protojson without the spaces that it puts in to keep people from
// comparing its output.
func asJSON(msg proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(msg)
	if err != nil {
		return nil, err
	}
	out := text[:0]
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ':
		case '"':
			end := endOfText(text, i)
			out = append(out, text[i:end+1]...)
			i = end
		default:
			out = append(out, text[i])
		}
	}
	return out, nil
}

// weigher counts the messages inside a message before memory is made for them.
type weigher struct{ messages int }

var (
	errTooManyMessages = errors.New("it has too many parts")
	errTooDeep         = fmt.Errorf("it is nested more than %d deep", bridge.MaxDepth)
)

// walk counts what is in b, a message of type d. What is malformed is left to
// proto.Unmarshal to say.
func (w *weigher) walk(b []byte, d protoreflect.MessageDescriptor, depth int) error {
	if depth > maxNesting {
		return errTooDeep
	}
	fields := d.Fields()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return nil
		}
		value := b[:n]
		b = b[n:]
		fd := fields.ByNumber(num)
		if fd == nil || typ != protowire.BytesType {
			continue
		}
		if fd.IsList() || fd.Message() != nil {
			if w.messages++; w.messages > maxMessages {
				return errTooManyMessages
			}
		}
		if fd.Message() == nil {
			continue
		}
		inner, _ := protowire.ConsumeBytes(value)
		if err := w.walk(inner, fd.Message(), depth+1); err != nil {
			return err
		}
	}
	return nil
}
