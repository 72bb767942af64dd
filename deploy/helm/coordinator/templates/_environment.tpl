{{/* The settings of a node, as variables. Numbers in quotes: Kubernetes wants text. */}}
{{- define "coordinator.environment" -}}
- name: COORDINATOR_LISTEN
  value: 0.0.0.0:7400
- name: COORDINATOR_METRICS_LISTEN
  value: 0.0.0.0:7401
- name: COORDINATOR_CONSOLE_LISTEN
  value: ""
- name: COORDINATOR_ADVERTISED_HOST
  value: $(POD_NAME).{{ include "coordinator.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- if .Values.kafka.enabled }}
- name: COORDINATOR_KAFKA_LISTEN
  value: 0.0.0.0:9092
- name: COORDINATOR_KAFKA_ADVERTISE
  value: $(POD_NAME).{{ include "coordinator.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:9092
{{- end }}
- name: COORDINATOR_LOG_FORMAT
  value: json
- name: COORDINATOR_DATA_DIR
  value: /data
- name: COORDINATOR_DRAIN_TIMEOUT_MS
  value: {{ int .Values.drainTimeoutMs | quote }}
- name: COORDINATOR_STORE
  value: {{ .Values.store.url | quote }}
{{- if include "coordinator.shared" . }}
- name: COORDINATOR_NODE_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end }}
{{- with .Values.store.user }}
- name: COORDINATOR_STORE_USER
  value: {{ . | quote }}
{{- end }}
{{- $files := dict "CA" .Values.store.caKey "CERT" .Values.store.certKey "KEY" .Values.store.keyKey "PASSWORD" .Values.store.passwordKey }}
{{- range $name, $key := $files }}
{{- if $key }}
{{- $_ := required "store.existingSecret: which secret has the keys that store names?" $.Values.store.existingSecret }}
- name: COORDINATOR_STORE_{{ $name }}_FILE
  value: /etc/coordinator/store/{{ $key }}
{{- end }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: COORDINATOR_TLS_CERT_FILE
  value: /etc/coordinator/tls/tls.crt
- name: COORDINATOR_TLS_KEY_FILE
  value: /etc/coordinator/tls/tls.key
- name: COORDINATOR_TLS_PEER_CA_FILE
  value: /etc/coordinator/tls/ca.crt
# For commands inside the pod, the probes' among them.
- name: COORDINATOR_CLIENT_TLS_CA
  value: /etc/coordinator/tls/ca.crt
{{- end }}
{{- if .Values.insecure }}
- name: COORDINATOR_INSECURE
  value: "true"
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: COORDINATOR_{{ upper $name }}
  {{- /* Large numbers come as floats and would be written with an exponent. */}}
  value: {{ ternary (printf "%.0f" $value) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- end -}}
