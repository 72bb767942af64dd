{{/* The release's name with the chart's, once. 50: room for what is put behind it. */}}
{{- define "coordinator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The service under which every node has a name of its own. */}}
{{- define "coordinator.nodes" -}}
{{ include "coordinator.fullname" . }}-nodes
{{- end -}}

{{- define "coordinator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coordinator.labels" -}}
{{ include "coordinator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "coordinator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* "shared", or nothing: is the store one that several nodes share? */}}
{{- define "coordinator.shared" -}}
{{- if contains "://" .Values.store.url }}shared{{ end -}}
{{- end -}}

{{/* Ports of the shared store's servers, as a list in JSON; PostgreSQL's may be left out. */}}
{{- define "coordinator.storePorts" -}}
{{- $ports := list -}}
{{- $servers := .Values.store.url | splitList "://" | last | splitList "/" | first -}}
{{- range $servers | splitList "@" | last | splitList "," -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default "5432" | int) -}}
{{- end -}}
{{ $ports | uniq | toJson }}
{{- end -}}

{{/* Seconds that a drain takes at most, rounded up. */}}
{{- define "coordinator.drainSeconds" -}}
{{ div (add (int .Values.drainTimeoutMs) 999) 1000 }}
{{- end -}}

{{/* Seconds until Kubernetes kills a node, which must not be in mid-drain. */}}
{{- define "coordinator.graceSeconds" -}}
{{- $drain := int (include "coordinator.drainSeconds" .) -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{ add $drain 20 }}
{{- else -}}
{{- $given := int .Values.terminationGracePeriodSeconds -}}
{{- if le $given $drain -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but a drain may take %d s: give more" $given $drain) -}}
{{- end -}}
{{ $given }}
{{- end -}}
{{- end -}}

{{/* Ask gRPC's health: the kubelet itself, or with TLS, which it cannot speak, our own command. */}}
{{- define "coordinator.probe" -}}
{{- if .root.Values.tls.existingSecret -}}
exec:
  command: [coordinator, health, --bootstrap, "localhost:7400", --timeout, {{ .probe.timeoutSeconds | quote }}]
{{- else -}}
grpc:
  port: 7400
{{- end }}
{{ toYaml .probe }}
{{- end -}}

{{/* For gateways and meshes: HTTP/2 in plain text, or over TLS. */}}
{{- define "coordinator.protocol" -}}
{{ ternary "https" "kubernetes.io/h2c" (ne .Values.tls.existingSecret "") }}
{{- end -}}
